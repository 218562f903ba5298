"""Exports the catalog's rows for other programs: files of JSON lines or Parquet, and last an index of them.

docs/exchange.md describes the format. Rows are streamed; the tables' files are verified as they are read. The
index has the SHA-256 of each file, so a signature of the index covers the export.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.rows.tables import OF_BACKUPS, TABLES, columns
from lakebackup.signing import envelope
from lakebackup.signing.faults import NotSigned, PayloadChanged, Untrusted
from lakebackup.signing.keys import SigningKey, TrustedKeys
from lakebackup.sql_engine.delta.dataset import dataset
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.sql_engine.failures import damaged_table
from lakebackup.storage import ObjectWriter, Storage
from lakebackup.store.manifest import read_record, write_record
from lakebackup.store.reader import CatalogReader
from lakebackup_sql import names

INDEX = "lakebackup-export.json"
SIGNATURE = "lakebackup-export.dsse.json"
_PAYLOAD_TYPE = "application/vnd.lakebackup.export+json"
_UNTRUSTED_HINT = "Get the export from its author again."
Form = Literal["jsonl", "parquet"]
ROWS_PER_FILE = 1_000_000
_BATCH = 10_000
#: All tables except `migrations`, which is about one catalog only.
EXCHANGED = tuple(table for table in TABLES if table != "migrations")


@dataclass(frozen=True, slots=True)
class RowsFile:
    """A file with rows of one table; `sha256` is of the file."""

    table: str
    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Index:
    """The content of an export. `version`: the catalog's schema version; `exported_at`: us since 1970 UTC."""

    version: int
    form: Form
    exported_at: int
    files: tuple[RowsFile, ...]


def export(
    reader: CatalogReader,
    folder: Storage,
    form: Form,
    progress: Callable[[int, int], None],
    key: SigningKey | None = None,
) -> Index:
    """Export the rows of all tables to an empty folder; `progress` gets rows and bytes so far.

    With `key`, the index is signed: the payload of an envelope beside it has its exact bytes. Raises Refused
    (the folder is not empty), Damaged (a table's file was changed).
    """
    existing = next(folder.list(), None)
    if existing:
        raise Refused(f"{folder.uri} holds {existing.path} already.", hint="Export into an empty folder.")
    files: list[RowsFile] = []
    rows = size = 0
    # Read backups first, to leave out rows of backups that are committed during the export.
    backup_ids = [
        str(row["backup_id"]) for batch in _rows(reader, "backups", None) for row in batch.to_pylist()
    ]
    for table in EXCHANGED:
        for file in _table(reader, folder, table, form, backup_ids):
            files.append(file)
            rows, size = rows + file.rows, size + file.bytes
            progress(rows, size)
    index = Index(len(names("migrations")), form, time.time_ns() // 1000, tuple(files))
    write_record(folder, INDEX, index)
    if key is not None:
        folder.put(SIGNATURE, envelope.seal(_PAYLOAD_TYPE, folder.get(INDEX), key).to_bytes())
    return index


def read_index(folder: Storage, keys: TrustedKeys | None = None) -> Index:
    """Read the index of an export. With `keys`, one of them must have signed it.

    Raises NotFound, Damaged, Untrusted (it is not signed, or is not what was signed) and UsageProblem (a
    newer version wrote it).
    """
    try:
        index = read_record(folder, INDEX, Index, "Export again.")
    except NotFound:
        raise NotFound(
            f"{folder.uri} holds no {INDEX}: it is not an export, or an incomplete one.",
            hint="Give the folder of a `lakebackup catalog export`, or files with --backups, --files.",
        ) from None
    if keys is not None:
        _require_signed(folder, keys)
    unknown = {file.table for file in index.files} - set(EXCHANGED)
    if index.version > len(names("migrations")) or unknown:
        raise UsageProblem(
            f"{folder.uri} was exported from a catalog of schema version {index.version}; "
            f"this lakebackup supports versions up to {len(names('migrations'))}.",
            hint="Use the lakebackup that wrote it, or a newer one.",
        )
    return index


def _require_signed(folder: Storage, keys: TrustedKeys) -> None:
    path = f"{folder.uri}/{SIGNATURE}"
    try:
        signed = envelope.read(folder.get(SIGNATURE, length=envelope.MAX_BYTES))
        envelope.verify(signed, _PAYLOAD_TYPE, keys)
    except NotFound:
        raise NotSigned(
            f"The export {folder.uri} is not signed, and public_keys are set.",
            hint="Export with a signing key, or unset public_keys under [signing] if you trust the folder.",
        ) from None
    except Untrusted as fault:
        raise type(fault)(f"{path}: {fault.message}", hint=_UNTRUSTED_HINT) from None
    if signed.payload != folder.get(INDEX):
        raise PayloadChanged(f"{folder.uri}/{INDEX} is not what was signed.", hint=_UNTRUSTED_HINT)


def require_whole(folder: Storage, files: tuple[RowsFile, ...]) -> None:
    """Raise Damaged or NotFound when a file differs from the index."""
    for file in files:
        if folder.sha256(file.path) != file.sha256:
            raise Damaged(
                f"{folder.uri}/{file.path} was changed after the export: its SHA-256 differs.",
                hint="Restore it from another copy, or export again.",
            )


def _rows(reader: CatalogReader, table: str, ids: list[str] | None) -> Iterator[pa.RecordBatch]:
    uri = f"{reader.catalog_uri}/{table}"
    scanner = dataset(uri, open_table(uri)).scanner(
        columns=[column.name for column in columns(table)],
        filter=ds.field("backup_id").isin(pa.array(ids, pa.string())) if ids is not None else None,
        batch_size=_BATCH,
        batch_readahead=2,  # saves memory
        fragment_readahead=1,
    )
    try:
        for batch in scanner.to_reader():
            if batch.num_rows:
                yield batch
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged_table(uri, error) from error


def _table(
    reader: CatalogReader, folder: Storage, table: str, form: Form, backup_ids: list[str]
) -> Iterator[RowsFile]:
    batches = _rows(reader, table, backup_ids if table in OF_BACKUPS else None)
    if table == "backups":
        batches = (_only(batch, backup_ids) for batch in batches)
    if table == "destinations":
        batches = (_absolute(batch, reader) for batch in batches)
    number, batch = 0, next(batches, None)
    while batch is not None:
        path = f"{table}-{number:04d}.{form}"
        with folder.writer() as writer:
            sink, rows = _Sink(writer), 0
            with _lines(sink) if form == "jsonl" else _parquet(sink, batch.schema) as write_batch:
                while batch is not None and rows < ROWS_PER_FILE:
                    write_batch(batch)
                    rows += batch.num_rows
                    batch = next(batches, None)
            writer.commit(path)
        yield RowsFile(table, path, rows, sink.bytes, sink.digest.hexdigest())
        number += 1


def _only(batch: pa.RecordBatch, backup_ids: list[str]) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column("backup_id"), pa.array(backup_ids, pa.string())))


def _absolute(batch: pa.RecordBatch, reader: CatalogReader) -> pa.RecordBatch:
    """Make the URIs of destinations absolute: they may be relative to this catalog."""
    rows = [{**row, "uri": reader.root_of(row["uri"])} for row in batch.to_pylist()]
    return pa.RecordBatch.from_pylist(rows, batch.schema)


class _Sink(io.RawIOBase):
    """A file object for pyarrow that writes to an ObjectWriter; counts bytes and computes their SHA-256."""

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
    def write_batch(batch: pa.RecordBatch) -> None:
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in batch.to_pylist())
        sink.write("".join(f"{line}\n" for line in lines).encode())

    yield write_batch


@contextmanager
def _parquet(sink: _Sink, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], object]]:
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, write_page_checksum=True) as writer:
        yield writer.write_batch
