"""Opens a Delta table for Arrow: a small table as its rows, a larger one as a dataset, which skips files by
the statistics in the table's log.

Every file is verified before it is read. Rows of small tables stay in a cache of the process.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lakebackup.errors import TooLarge
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine.delta.log import per_process
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.sql_engine.delta.verified import VerifiedFiles, verified_files
from lakebackup.sql_engine.failures import damaged_catalog, damaged_table, passed_on

# A table within these limits is small: to read its rows takes less time than to make a dataset and scan it.
_SMALL_BYTES = 4 << 20
_SMALL_FILES = 64
_SMALL_ROWS = 100_000  # in any of its files
# The most rows that `rows_of` returns. A backup each minute makes half as many rows in a year.
_MAX_ROWS = 1_000_000
# The number of files that a scan reads in parallel, ahead of the reader of its rows.
_AHEAD = 4
# Each thread of DuckDB requests a batch of a scan, also for a join whose other side has no rows. A scan that
# requests more batches than these is expected to read all.
_FIRST_BATCHES = 8
# Columns with few distinct values are read as dictionaries, which takes half the time. Columns by which
# queries choose files or rows are not among them: DuckDB does not pass conditions on a dictionary to the
# scan, which would then read more.
_REPEATED = frozenset({"destination", "format", "codec", "key_id", "keys_path", "ts_domain", "settings"})
# The most bytes of the rows of small tables that stay in memory.
_CACHE_BYTES = 64 << 20


@dataclass(slots=True)
class ScanLimit:
    """How many more rows the scans of some datasets may read; None: any number."""

    rows: int | None = None

    def count(self, rows: int) -> None:
        """Count rows that a scan will read. Raises TooLarge, as an OSError, if they are too many."""
        if self.rows is not None:
            self.rows -= rows
            if self.rows < 0:
                raise passed_on(TooLarge("The query reads too many rows."))


def small_or_dataset(uri: str, table: DeltaTable, limit: ScanLimit | None = None) -> pa.Table | ds.Dataset:
    """Return all rows of a Delta table opened from `uri` if it is small, else a dataset of it, whose scans
    keep within `limit`. Raises Damaged."""
    files = table.get_add_actions()
    sizes = files.column("size_bytes").to_pylist()
    is_plain = table.protocol().min_reader_version == 1
    if is_plain and len(sizes) <= _SMALL_FILES and sum(sizes) <= _SMALL_BYTES:
        with suppress(_TooManyRows):
            return _read_small_table(uri, table, list(files.column("path").to_pylist()))
    return dataset(uri, table, limit)


def _read_small_table(uri: str, table: DeltaTable, paths: Sequence[str]) -> pa.Table:
    verified = VerifiedFiles(uri)
    try:
        if verified.remote:
            verified.expect(paths, _SMALL_BYTES)
        return _row_cache().rows(
            verified, uri, paths, _full_schema(uri, pa.schema(table.schema().to_arrow()))
        )
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise damaged_table(uri, error) from error


def rows_in_files(uri: str, table: DeltaTable, paths: Sequence[str]) -> pa.Table:
    """Return all rows of some files of a Delta table opened from `uri`, with the table's columns. Raises
    Damaged."""
    verified, schema = VerifiedFiles(uri), pa.schema(table.schema().to_arrow())
    try:
        if verified.remote:
            verified.expect(paths, max(table.get_add_actions().column("size_bytes").to_pylist()))
        rows = (_cast(schema, _read_file(verified, path)) for path in paths)
        return pa.concat_tables([schema.empty_table(), *rows], promote_options="default")
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise damaged_table(uri, error) from error


class _RowCache:
    """The rows of small tables as they were last read.

    When a table is used again, it often has the same files and one or two more: only these are read. If a
    file was removed or replaced, all files are read again. When the rows take too much memory, the tables
    that were not used for the longest time are dropped.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[str, tuple[Mapping[str, object], pa.Table]] = OrderedDict()
        self._table_bytes: dict[str, int] = {}
        self._lock = Lock()

    def rows(self, verified: VerifiedFiles, uri: str, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Return the rows of the files `paths` of the table at `uri`. Raises _TooManyRows."""
        marks = {path: verified.mark(path) for path in paths}
        with self._lock:
            cached_marks, rows = self._tables.get(uri, ({}, schema.empty_table()))
        if not cached_marks.items() <= marks.items() or not rows.schema.equals(schema):
            cached_marks, rows = {}, schema.empty_table()
        if added := [
            _cast(schema, _read_file(verified, path, _SMALL_ROWS))
            for path in paths
            if path not in cached_marks
        ]:
            rows = pa.concat_tables([rows, *added], promote_options="default").combine_chunks()
        with self._lock:
            self._tables[uri], self._table_bytes[uri] = (marks, rows), rows.nbytes
            self._tables.move_to_end(uri)
            while sum(self._table_bytes.values()) > _CACHE_BYTES:
                del self._table_bytes[self._tables.popitem(last=False)[0]]
        return rows


class _TooManyRows(Exception):
    """A file has few bytes but too many rows for a small table, since equal rows take hardly any bytes."""


def _read_file(verified: VerifiedFiles, path: str, most_rows: int | None = None) -> pa.Table:
    file = pq.ParquetFile(verified.open_input_file(path), page_checksum_verification=True)
    if most_rows is not None and file.metadata.num_rows > most_rows:
        raise _TooManyRows
    return file.read(use_threads=False)  # threads cost more than they gain here


@per_process
def _row_cache() -> _RowCache:
    return _RowCache()


def _cast(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Cast rows to the types of a schema: a writer may have chosen other types with the same meaning."""
    target_schema = pa.schema([schema.field(name) for name in rows.column_names])
    # A cast that changes nothing is left out: it would load slow modules.
    return rows if rows.schema.equals(target_schema) else rows.cast(target_schema)


def dataset(uri: str, table: DeltaTable, limit: ScanLimit | None = None) -> ds.Dataset:
    """Return a Delta table opened from `uri` as a dataset that prunes files by the log's statistics and
    verifies those that it reads. Its scans keep within `limit`."""
    verified = verified_files(uri)
    file_format = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(dictionary_columns=_REPEATED),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
    )
    if table.protocol().min_reader_version == 1:
        schema = pa.schema(table.schema().to_arrow())
        files = _file_conditions(table, schema)
    else:  # delta-rs knows which features it can read; its dataset is the same, but takes twice the time
        delta_dataset = table.to_pyarrow_dataset(filesystem=verified)
        schema = delta_dataset.schema
        files = ((part.path, part.partition_expression) for part in delta_dataset.get_fragments())
    fragments = [file_format.make_fragment(path, verified, condition) for path, condition in files]
    schema = pa.schema([_as_dictionary(field) for field in _full_schema(uri, schema)])
    file_dataset = _with_read_ahead(ds.FileSystemDataset)(fragments, schema, file_format, verified)
    file_dataset.verified_files = verified.handler
    added = table.get_add_actions(flatten=True)
    file_dataset.largest_bytes = max(added.column("size_bytes").to_pylist(), default=0)
    file_dataset.row_counts = {}
    if "num_records" in added.schema.names:
        file_dataset.row_counts = dict(
            zip(added.column("path").to_pylist(), added.column("num_records").to_pylist(), strict=True)
        )
    file_dataset.limit = limit or ScanLimit()
    return file_dataset


def _as_dictionary(field: pa.Field) -> pa.Field:
    is_repeated = field.name in _REPEATED and pa.types.is_string(field.type)
    return field.with_type(pa.dictionary(pa.int32(), field.type)) if is_repeated else field


def _full_schema(uri: str, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table. Those of a catalog table that a migration has yet to add are among them,
    and are null in all rows."""
    declared = ARROW_SCHEMAS.get(uri.rpartition("/")[2], pa.schema([]))
    return pa.schema([*schema, *(field for field in declared if field.name not in schema.names)])


def rows_of(uri: str, opened: DeltaTable | None = None) -> pa.Table:
    """Return all rows of the table at `uri`; of the version `opened`, if there is one.

    Raises NotFound, and Damaged, also if the table has more than _MAX_ROWS rows.
    """
    table = small_or_dataset(uri, opened or open_table(uri))
    if isinstance(table, pa.Table):
        return table
    try:
        reader, batches, row_count = table.scanner().to_reader(), [], 0
        for batch in reader:
            batches.append(batch)
            row_count += batch.num_rows
            if row_count > _MAX_ROWS:
                raise damaged_catalog(f"The table at {uri} has more than {_MAX_ROWS:,} rows.")
        return pa.Table.from_batches(batches, reader.schema)
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise damaged_table(uri, error) from error


def _file_conditions(table: DeltaTable, schema: pa.Schema) -> Iterator[tuple[str, pc.Expression]]:
    """Yield the path of each file of a table, and a condition that all its rows meet, from its statistics in
    the log."""
    files = table.get_add_actions(flatten=True)
    values = {name: files.column(name).to_pylist() for name in files.schema.names}
    statistics = [
        (pc.field(name), values[f"min.{name}"], values[f"max.{name}"], values[f"null_count.{name}"])
        for name in schema.names
        if f"min.{name}" in values and f"max.{name}" in values and f"null_count.{name}" in values
    ]
    for number, path in enumerate(values.get("path", ())):
        condition = pc.scalar(True)
        for field, minimums, maximums, null_counts in statistics:
            if null_counts[number] is None or minimums[number] is None or maximums[number] is None:
                continue
            in_range = (field >= minimums[number]) & (field <= maximums[number])
            condition &= in_range if null_counts[number] == 0 else in_range | field.is_null()
        yield path, condition


@cache
def _with_read_ahead(kind: type[ds.FileSystemDataset]) -> type[ds.FileSystemDataset]:
    """Return a subclass of a dataset class that scans a few files ahead of DuckDB, each with one thread.

    Arrow's own scanner reads a gigabyte ahead, even from a table that a join does not need because its other
    side has no rows. Its `to_reader` also starts to read while it holds the GIL, which a file system written
    in Python needs to serve that read.
    """

    class ReadAhead(kind):  # type: ignore[misc]
        def scanner(self, **options: Any) -> Any:
            schema = super().scanner(**options).projected_schema
            fragments = list(self.get_fragments(options.get("filter")))
            if self.verified_files.remote:
                self.verified_files.expect([fragment.path for fragment in fragments], self.largest_bytes)

            def read(fragment: ds.ParquetFileFragment) -> pa.Table:
                return fragment.to_table(schema=self.schema, use_threads=False, **options)

            def batches() -> Iterator[pa.RecordBatch]:
                remaining_rows = sum(self.row_counts.get(fragment.path) or 0 for fragment in fragments)
                for number, batch in enumerate(_ahead(read, fragments)):
                    if number < _FIRST_BATCHES:
                        self.limit.count(len(batch))
                        remaining_rows -= len(batch)
                    elif number == _FIRST_BATCHES:
                        self.limit.count(remaining_rows)
                    yield batch

            return SimpleNamespace(
                projected_schema=schema,
                to_reader=lambda: pa.RecordBatchReader.from_batches(schema, batches()),
            )

    return ReadAhead


def _ahead(
    read: Callable[[ds.ParquetFileFragment], pa.Table], parts: Iterable[ds.ParquetFileFragment]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in order, and read some files ahead. Nothing is read before the first batch is
    requested."""
    remaining = iter(parts)
    futures: deque[Future[pa.Table]] = deque()
    try:
        while True:
            futures.extend(_readers().submit(read, part) for part in islice(remaining, _AHEAD - len(futures)))
            if not futures:
                return
            yield from futures.popleft().result().to_batches()
    finally:
        for future in futures:
            future.cancel()


@per_process
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AHEAD, thread_name_prefix="table")
