"""Stores imported rows in the destination, so that a rebuilt catalog has them too.

The folder `imports/<id>/` holds the rows as they were appended to the tables. Its sealed `import.json` lists
these objects and holds the rows of `backups`. The import exists once this file does.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from lakebackup.errors import LakebackupError, NotFound
from lakebackup.recovery.exchange import RowsFile
from lakebackup.rows.backups import Backup
from lakebackup.rows.tables import ARROW_SCHEMAS, OF_BACKUPS, spark_columns
from lakebackup.rules import layout
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup.sql_engine.worker import PerNumber, in_chunks, task_number, trim_worker
from lakebackup.storage import Storage, open_storage, working
from lakebackup.store.delta_append import ROWS_PER_FILE
from lakebackup.store.manifest import get_verified, read_record, write_record
from lakebackup.store.writer import CatalogWriter

# The columns that a task reports for each object that it wrote.
OBJECT_COLUMNS = "table STRING, path STRING, rows BIGINT, bytes BIGINT, sha256 STRING"
# Returns, for a task's name, a function that counts the rows and bytes that the task has processed.
Counters: TypeAlias = "Callable[[str], Callable[[int, int], None]]"
_ROWS_AT_ONCE = 10_000
_HINT = "Take it from another copy of the repository, or import once more what it was made from."


def uncounted(_task: str) -> Callable[[int, int], None]:
    """Counters for tasks whose progress is not shown."""
    return lambda _rows, _bytes: None


@dataclass(frozen=True, slots=True)
class Import:
    """One import; `at` in us since 1970 UTC, `given`: what it was made from; `chunks`: its row objects."""

    import_id: str
    at: int
    actor: str
    given: str
    backups: tuple[Backup, ...]
    chunks: tuple[RowsFile, ...]


def write_import(storage: Storage, record: Import) -> None:
    """Write `import.json`: now the import exists, and is resumed until its rows are in the catalog."""
    write_record(storage, layout.import_path(record.import_id), record)


def read_import(storage: Storage, import_id: str) -> Import:
    """Read the import with an id. Raises NotFound, Damaged, UsageProblem (a newer version wrote it)."""
    return read_record(storage, layout.import_path(import_id), Import, _HINT)


def sweep(storage: Storage, record: Import) -> None:
    """Delete the objects of earlier runs of the same import that died before it existed."""
    own_paths = {layout.import_path(record.import_id), *(chunk.path for chunk in record.chunks)}
    paths = [item.path for item in storage.list(layout.import_folder(record.import_id))]
    working.delete(storage, (path for path in paths if path not in own_paths))


def append(
    spark: SparkSession,
    writer: CatalogWriter,
    record: Import,
    transaction: str,
    *,
    spare: Collection[str] = (),
    counters: Counters = uncounted,
) -> None:
    """Append the rows of an import, except those of the table backups, once for each `transaction`.

    Leaves out rows of the backups `spare`, and rows that the tables already have. Tasks count the rows that
    they have read with `counters`.
    """
    engine = SparkEngine(spark, writer.catalog_uri)
    for table in sorted({chunk.table for chunk in record.chunks}):
        chunks = tuple(chunk for chunk in record.chunks if chunk.table == table)
        reader = ChunkReader(writer.home.uri, chunks, counters)
        rows = reader.over(spark, range(len(chunks)), spark_columns(table))
        if table == "destinations":
            rows = rows.join(engine.table(table).select("destination"), "destination", "left_anti")
        elif table == "removals":  # a prune's rows are appended all at once, and may be folded into one row
            existing = engine.table(table).select("prune_id", "backup_id")
            rows = rows.join(existing, ["prune_id", "backup_id"], "left_anti")
        elif table not in OF_BACKUPS:
            rows = rows.subtract(engine.table(table))
        elif spare:
            rows = rows.where(~rows["backup_id"].isin(list(spare)))
        writer.append_frame(table, rows, f"{transaction}-{table}")


def rebuild(
    spark: SparkSession, writer: CatalogWriter, run_id: str, own_ids: Collection[str]
) -> tuple[list[Backup], list[str]]:
    """Append the rows of every import to a catalog that is being rebuilt.

    Returns the imported backups, whose rows the caller appends to make them visible, and the problems.
    `own_ids`: ids of the backups that the rebuild has from their own manifests.
    """
    backups: dict[str, Backup] = {}
    problems = []
    for import_id in writer.home.folders(f"{layout.IMPORTS_FOLDER}/"):
        try:
            try:
                record = read_import(writer.home, import_id)
            except NotFound:  # the run died before it wrote import.json
                continue
            spare = {b.backup_id for b in record.backups} & {*own_ids, *backups}
            append(spark, writer, record, f"rebuild-{run_id}-{import_id}", spare=spare)
            backups |= {b.backup_id: b for b in record.backups if b.backup_id not in spare}
        except LakebackupError as error:
            problems.append(error.message)
    return list(backups.values()), problems


def write_rows(
    rows: DataFrame, table: str, storage: Storage, import_id: str, counters: Counters
) -> list[RowsFile]:
    """Write rows of a table as objects of an import. The driver receives one row for each object."""
    objects = rows.mapInArrow(ChunkWriter(storage.uri, import_id, table, counters), OBJECT_COLUMNS)
    return [RowsFile(**row.asDict()) for row in objects.collect()]


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """For `mapInArrow` over rows of a table: writes them as objects, and yields a row of WRITTEN for each."""

    destination_uri: str
    import_id: str
    table: str
    counters: Counters

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = self.counters(f"{self.table}-{task_number():06d}")
        for rows in in_chunks(batches, ARROW_SCHEMAS[self.table], ROWS_PER_FILE):
            chunk = self._write(rows)
            count(chunk.rows, 0)
            yield pa.RecordBatch.from_pylist([asdict(chunk)])
        trim_worker()

    def _write(self, rows: pa.Table) -> RowsFile:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = layout.imported_path(self.import_id, self.table, task_number(), secrets.token_hex(4))
        open_storage(self.destination_uri).put(path, data, if_absent=True)
        return RowsFile(self.table, path, len(rows), len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class ChunkReader(PerNumber):
    """Reads the rows of the object `chunks[number]`, after verifying all of it."""

    destination_uri: str
    chunks: tuple[RowsFile, ...]
    counters: Counters

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        chunk = self.chunks[number]
        data = get_verified(open_storage(self.destination_uri), chunk.path, chunk.sha256)
        count = self.counters(f"{chunk.table}-{number:06d}")
        for batch in pq.read_table(pa.BufferReader(data)).to_batches(_ROWS_AT_ONCE):
            yield batch
            count(len(batch), 0)
