"""The catalog's rows as files for other programs: JSON lines or Parquet, with an index that is put last.

docs/exchange.md describes the form. Rows stream from the tables, whose files are verified, to the files.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.rows.tables import OF_BACKUPS, TABLES, columns
from lakebackup.store.manifest import read_record, write_record
from lakebackup_sql import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakebackup.storage import ObjectWriter, Storage
    from lakebackup.store.reader import CatalogReader

INDEX = "lakebackup-export.json"
Form = Literal["jsonl", "parquet"]
ROWS_PER_FILE = 1_000_000
_BATCH = 10_000
#: All but `migrations`, which speaks of one catalog alone.
EXCHANGED = tuple(table for table in TABLES if table != "migrations")


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A file of rows of one table; `sha256` of its bytes."""

    table: str
    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Index:
    """What an export holds. `version`: schema version of the catalog; `exported_at`: us since 1970 UTC."""

    version: int
    form: Form
    exported_at: int
    files: tuple[RowsFile, ...]


def export(reader: CatalogReader, folder: Storage, form: Form, progress: Callable[[int, int], None]) -> Index:
    """Write all rows that count into an empty folder, the index last. `progress` gets rows and bytes so far.

    Raises Refused (the folder holds something), Damaged (a table is not as it was written).
    """
    found = next(folder.list(), None)
    if found:
        raise Refused(f"{folder.uri} holds {found.path} already.", hint="Export into an empty folder.")
    files: list[RowsFile] = []
    rows = size = 0
    # The backups first: what is committed while the others are read is left out.
    known = [str(row["backup_id"]) for batch in _rows(reader, "backups", None) for row in batch.to_pylist()]
    for table in EXCHANGED:
        for file in _table(reader, folder, table, form, known):
            files.append(file)
            rows, size = rows + file.rows, size + file.bytes
            progress(rows, size)
    made = Index(len(names("migrations")), form, time.time_ns() // 1000, tuple(files))
    write_record(folder, INDEX, made)
    return made


def read_index(folder: Storage) -> Index:
    """What an export holds. Raises NotFound, Damaged, UsageProblem (written by a newer version)."""
    try:
        found = read_record(folder, INDEX, Index, "Export once more.")
    except NotFound:
        raise NotFound(
            f"{folder.uri} holds no {INDEX}: it is no export, or one that did not finish.",
            hint="Give the folder of a `lakebackup catalog export`, or name files with --backups, --files.",
        ) from None
    unknown = {file.table for file in found.files} - set(EXCHANGED)
    if found.version > len(names("migrations")) or unknown:
        raise UsageProblem(
            f"{folder.uri} was exported from a catalog of schema version {found.version}; "
            f"this lakebackup knows versions up to {len(names('migrations'))}.",
            hint="Use the lakebackup that wrote it, or a newer one.",
        )
    return found


def require_whole(folder: Storage, files: tuple[RowsFile, ...]) -> None:
    """Raises Damaged, NotFound when a file differs from the index."""
    for file in files:
        if folder.sha256(file.path) != file.sha256:
            raise Damaged(
                f"{folder.uri}/{file.path} is not as it was exported: its SHA-256 differs.",
                hint="Take it from another copy, or export once more.",
            )


def _rows(reader: CatalogReader, table: str, ids: list[str] | None) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from lakebackup.sql_engine.delta.dataset import dataset
    from lakebackup.sql_engine.delta.table import open_table
    from lakebackup.sql_engine.failures import damaged_table

    uri = f"{reader.catalog_uri}/{table}"
    found = dataset(uri, open_table(uri)).scanner(
        columns=[column.name for column in columns(table)],
        filter=ds.field("backup_id").isin(pa.array(ids, pa.string())) if ids is not None else None,
        batch_size=_BATCH,
        batch_readahead=2,  # little is read ahead, so that little is held
        fragment_readahead=1,
    )
    try:
        for batch in found.to_reader():
            if batch.num_rows:
                yield batch
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged_table(uri, error) from error


def _table(
    reader: CatalogReader, folder: Storage, table: str, form: Form, known: list[str]
) -> Iterator[RowsFile]:
    batches = _rows(reader, table, known if table in OF_BACKUPS else None)
    if table == "backups":
        batches = (_only(batch, known) for batch in batches)
    if table == "destinations":
        batches = (_absolute(batch, reader) for batch in batches)
    number, batch = 0, next(batches, None)
    while batch is not None:
        path = f"{table}-{number:04d}.{form}"
        with folder.writer() as writer:
            sink, rows = _Sink(writer), 0
            with _lines(sink) if form == "jsonl" else _parquet(sink, batch.schema) as put:
                while batch is not None and rows < ROWS_PER_FILE:
                    put(batch)
                    rows += batch.num_rows
                    batch = next(batches, None)
            writer.commit(path)
        yield RowsFile(table, path, rows, sink.bytes, sink.digest.hexdigest())
        number += 1


def _only(batch: pa.RecordBatch, known: list[str]) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    return batch.filter(pc.is_in(batch.column("backup_id"), pa.array(known, pa.string())))


def _absolute(batch: pa.RecordBatch, reader: CatalogReader) -> pa.RecordBatch:
    """Where destinations are, by URIs that hold for a catalog in another place too."""
    import pyarrow as pa

    rows = [{**row, "uri": reader.root_of(row["uri"])} for row in batch.to_pylist()]
    return pa.RecordBatch.from_pylist(rows, batch.schema)


class _Sink(io.RawIOBase):
    """An object being written, with the number of its bytes and their SHA-256; a file to pyarrow."""

    def __init__(self, writer: ObjectWriter) -> None:
        super().__init__()
        self._writer = writer
        self.bytes = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        self._writer.write(view)
        self.digest.update(view)
        self.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.bytes


@contextmanager
def _lines(sink: _Sink) -> Iterator[Callable[[pa.RecordBatch], object]]:
    def put(batch: pa.RecordBatch) -> None:
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in batch.to_pylist())
        sink.write("".join(f"{line}\n" for line in lines).encode())

    yield put


@contextmanager
def _parquet(sink: _Sink, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], object]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, write_page_checksum=True) as writer:
        yield writer.write_batch
