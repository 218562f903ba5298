"""A Delta table as Arrow has it, every file verified: a dataset pruned by the log's statistics, or, if the
table is small, its rows."""

from __future__ import annotations

from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import islice
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine.delta.log import per_process
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.sql_engine.failures import damaged_catalog, damaged_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from lakebackup.sql_engine.delta.verified import VerifiedFiles

# A dataset of so little costs more to make and to load than its rows.
_SMALL_BYTES = 4 << 20
_SMALL_FILES = 64
_SMALL_ROWS = 100_000  # of a file
# Of a table that is read whole.
_MOST_ROWS = 1_000_000
# Files that a scan reads at once, each before its rows are asked for.
_AHEAD = 4
# Columns in which few values repeat, read as dictionaries: that takes half the time. Not those by which files
# or rows are chosen: DuckDB does not pass on what it asks of a dictionary, and then more is read.
_REPEATED = frozenset({"destination", "format", "codec", "key_id", "keys_path", "ts_domain", "settings"})
# Of rows of small tables, in memory.
_KEPT_BYTES = 64 << 20


def small_or_dataset(uri: str, table: DeltaTable) -> pa.Table | ds.Dataset:
    """A Delta table opened from `uri` for DuckDB: all rows of a small one. Raises Damaged."""
    files = table.get_add_actions()
    sizes = files.column("size_bytes").to_pylist()
    plain = table.protocol().min_reader_version == 1
    if plain and len(sizes) <= _SMALL_FILES and sum(sizes) <= _SMALL_BYTES:
        with suppress(_TooMany):
            return _read(uri, table, list(files.column("path").to_pylist()))
    return dataset(uri, table)


def _read(uri: str, table: DeltaTable, paths: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    from lakebackup.sql_engine.delta.verified import VerifiedFiles

    verified = VerifiedFiles(uri)
    try:
        if verified.remote:
            verified.expect(paths, _SMALL_BYTES)
        return _kept().rows(verified, uri, paths, _whole(uri, pa.schema(table.schema().to_arrow())))
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise damaged_table(uri, error) from error


class _Kept:
    """Rows of small tables as they were read last: the next backup of a session finds the same files, and one
    or two more. A file does not change; where one is gone or was replaced, all are read again."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, tuple[Mapping[str, object], pa.Table]] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._lock = Lock()

    def rows(self, verified: VerifiedFiles, uri: str, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
        import pyarrow as pa

        marks = {path: verified.mark(path) for path in paths}
        with self._lock:
            held, rows = self._tables.get(uri, ({}, schema.empty_table()))
        if not held.items() <= marks.items() or not rows.schema.equals(schema):
            held, rows = {}, schema.empty_table()
        if added := [_as(schema, _read_file(verified, path)) for path in paths if path not in held]:
            rows = pa.concat_tables([rows, *added], promote_options="default").combine_chunks()
        with self._lock:
            self._tables[uri], self._bytes[uri] = (marks, rows), rows.nbytes
            self._tables.move_to_end(uri)
            while sum(self._bytes.values()) > _KEPT_BYTES:
                del self._bytes[self._tables.popitem(last=False)[0]]
        return rows


class _TooMany(Exception):
    """A small file has more rows than a small table: equal rows take next to no bytes."""


def _read_file(verified: VerifiedFiles, path: str) -> pa.Table:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(verified.open_input_file(path), page_checksum_verification=True)
    if file.metadata.num_rows > _SMALL_ROWS:
        raise _TooMany
    return file.read(use_threads=False)  # to deal out so little costs more


@per_process
def _kept() -> _Kept:
    return _Kept()


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Rows with the types of a schema: a writer may have chosen other ones of the same meaning."""
    import pyarrow as pa

    wanted = pa.schema([schema.field(name) for name in rows.column_names])
    return rows if rows.schema.equals(wanted) else rows.cast(wanted)  # to cast loads much


def dataset(uri: str, table: DeltaTable) -> ds.Dataset:
    """A Delta table opened from `uri` as a dataset that prunes by the log's statistics and verifies."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    from lakebackup.sql_engine.delta.verified import verified_files

    verified = verified_files(uri)
    verifying = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(dictionary_columns=_REPEATED),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
    )
    if table.protocol().min_reader_version == 1:
        schema = pa.schema(table.schema().to_arrow())
        parts = _known(table, schema)
    else:  # delta-rs knows which features it can read, and builds the same, ten times more slowly
        built = table.to_pyarrow_dataset(filesystem=verified)
        schema = built.schema
        parts = ((part.path, part.partition_expression) for part in built.get_fragments())
    fragments = [verifying.make_fragment(path, verified, holds) for path, holds in parts]
    schema = pa.schema([_repeated(field) for field in _whole(uri, schema)])
    found = _unlocked(ds.FileSystemDataset)(fragments, schema, verifying, verified)
    found.read_from = verified.handler
    found.largest = max(table.get_add_actions(flatten=True).column("size_bytes").to_pylist(), default=0)
    return found


def _repeated(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    few = field.name in _REPEATED and pa.types.is_string(field.type)
    return field.with_type(pa.dictionary(pa.int32(), field.type)) if few else field


def _whole(uri: str, schema: pa.Schema) -> pa.Schema:
    """The columns of a table, and those of a catalog table that a migration has still to add: null in rows
    that were written before."""
    import pyarrow as pa

    declared = ARROW_SCHEMAS.get(uri.rpartition("/")[2], pa.schema([]))
    return pa.schema([*schema, *(field for field in declared if field.name not in schema.names)])


def rows_of(uri: str, opened: DeltaTable | None = None) -> pa.Table:
    """All rows of the table at `uri` (`opened`: at that version), for a small one.
    Raises NotFound, Damaged, also for more rows than a backup of each minute of a year would have."""
    import pyarrow as pa

    found = small_or_dataset(uri, opened or open_table(uri))
    if isinstance(found, pa.Table):
        return found
    try:
        reader, batches, number = found.scanner().to_reader(), [], 0
        for batch in reader:
            batches.append(batch)
            number += batch.num_rows
            if number > _MOST_ROWS:
                raise damaged_catalog(f"The table at {uri} has more than {_MOST_ROWS:,} rows.")
        return pa.Table.from_batches(batches, reader.schema)
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise damaged_table(uri, error) from error


def _known(table: DeltaTable, schema: pa.Schema) -> Iterator[tuple[str, pc.Expression]]:
    """Each file of a table, and a condition that all its rows meet, by its statistics in the log."""
    import pyarrow.compute as pc

    files = table.get_add_actions(flatten=True)
    values = {name: files.column(name).to_pylist() for name in files.schema.names}
    stated = [
        (pc.field(name), values[f"min.{name}"], values[f"max.{name}"], values[f"null_count.{name}"])
        for name in schema.names
        if f"min.{name}" in values and f"max.{name}" in values and f"null_count.{name}" in values
    ]
    for number, path in enumerate(values.get("path", ())):
        holds = pc.scalar(True)
        for field, least, most, nulls in stated:
            if nulls[number] is None or least[number] is None or most[number] is None:
                continue
            within = (field >= least[number]) & (field <= most[number])
            holds &= within if nulls[number] == 0 else within | field.is_null()
        yield path, holds


@cache
def _unlocked(kind: type[ds.FileSystemDataset]) -> type[ds.FileSystemDataset]:
    """That kind of dataset as DuckDB reads it: a few files ahead of it, each by one thread.

    Arrow's scanner reads a gigabyte ahead, even of a table that a join with nothing needs no more. And its
    `to_reader` begins to read while it holds Python's lock, which a file system in Python waits for.
    """
    import pyarrow as pa

    class Unlocked(kind):  # type: ignore[misc]
        def scanner(self, **asked: Any) -> Any:
            projected = super().scanner(**asked).projected_schema
            parts = list(self.get_fragments(asked.get("filter")))
            if self.read_from.remote:
                self.read_from.expect([part.path for part in parts], self.largest)

            def read(part: ds.ParquetFileFragment) -> pa.Table:
                return part.to_table(schema=self.schema, use_threads=False, **asked)

            return SimpleNamespace(
                projected_schema=projected,
                to_reader=lambda: pa.RecordBatchReader.from_batches(projected, _ahead(read, parts)),
            )

    return Unlocked


def _ahead(
    read: Callable[[ds.ParquetFileFragment], pa.Table], parts: Iterable[ds.ParquetFileFragment]
) -> Iterator[pa.RecordBatch]:
    """The rows of files in their order. Nothing is read before the first are asked for."""
    left = iter(parts)
    coming: deque[Future[pa.Table]] = deque()
    try:
        while True:
            coming.extend(_readers().submit(read, part) for part in islice(left, _AHEAD - len(coming)))
            if not coming:
                return
            yield from coming.popleft().result().to_batches()
    finally:
        for one in coming:
            one.cancel()


@per_process
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AHEAD, thread_name_prefix="table")
