"""Imported rows, kept in the destination, so that a rebuilt catalog has them too.

`imports/<id>/` holds the rows as they went into the tables; the sealed `import.json` lists those objects,
holds the rows of `backups`, and alone makes the import exist.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias

from lakebackup.errors import LakebackupError, NotFound
from lakebackup.recovery.exchange import RowsFile
from lakebackup.rows.backups import Backup  # noqa: TC001 - read by pydantic
from lakebackup.rows.tables import ARROW_SCHEMAS, OF_BACKUPS, spark_columns
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import PerNumber, in_chunks, settle, task_number
from lakebackup.storage import open_storage, working
from lakebackup.store.delta_append import ROWS_PER_FILE
from lakebackup.store.manifest import get_whole, read_record, write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.storage import Storage
    from lakebackup.store.writer import CatalogWriter

# What a task that wrote rows reports of each object it wrote.
WRITTEN = "table STRING, path STRING, rows BIGINT, bytes BIGINT, sha256 STRING"
# Makes, for a task's name, what counts the rows and bytes that the task is done with.
Counters: TypeAlias = "Callable[[str], Callable[[int, int], None]]"
_ROWS_AT_ONCE = 10_000
_HINT = "Take it from another copy of the repository, or import once more what it was made from."


def uncounted(_task: str) -> Callable[[int, int], None]:
    """For tasks whose progress nobody watches."""
    return lambda _rows, _bytes: None


@dataclass(frozen=True, slots=True)
class Import:
    """One import; `at` in us since 1970 UTC, `given`: what it was made from."""

    import_id: str
    at: int
    actor: str
    given: str
    backups: tuple[Backup, ...]
    chunks: tuple[RowsFile, ...]


def write_import(storage: Storage, made: Import) -> None:
    """Put `import.json`: from now on the import exists, and is resumed until its rows are in the catalog."""
    write_record(storage, layout.import_path(made.import_id), made)


def read_import(storage: Storage, import_id: str) -> Import:
    """The import of that id. Raises NotFound, Damaged, UsageProblem (a newer version wrote it)."""
    return read_record(storage, layout.import_path(import_id), Import, _HINT)


def sweep(storage: Storage, made: Import) -> None:
    """Delete what an earlier run of the same import wrote that died before the import came to exist."""
    ours = {layout.import_path(made.import_id), *(chunk.path for chunk in made.chunks)}
    paths = [item.path for item in storage.list(layout.import_folder(made.import_id))]
    working.delete(storage, (path for path in paths if path not in ours))


def append(
    spark: SparkSession,
    writer: CatalogWriter,
    made: Import,
    transaction: str,
    *,
    spare: Collection[str] = (),
    counters: Counters = uncounted,
) -> None:
    """Append the rows of an import, except those of `backups`, to their tables, once for each `transaction`.

    Rows of the backups `spare` are left out, and rows that the tables have already. Tasks count with
    `counters` the rows that they have read.
    """
    from lakebackup.sql_engine.spark import SparkEngine

    engine = SparkEngine(spark, writer.catalog_uri)
    for table in sorted({chunk.table for chunk in made.chunks}):
        chunks = tuple(chunk for chunk in made.chunks if chunk.table == table)
        reader = ChunkReader(writer.home.uri, chunks, counters)
        rows = reader.over(spark, range(len(chunks)), spark_columns(table))
        if table == "destinations":
            rows = rows.join(engine.table(table).select("destination"), "destination", "left_anti")
        elif table == "removals":  # a prune's come all at once; they may be one row by now, here or there
            there = engine.table(table).select("prune_id", "backup_id")
            rows = rows.join(there, ["prune_id", "backup_id"], "left_anti")
        elif table not in OF_BACKUPS:
            rows = rows.subtract(engine.table(table))
        elif spare:
            rows = rows.where(~rows["backup_id"].isin(list(spare)))
        writer.append_frame(table, rows, f"{transaction}-{table}")


def rebuild(
    spark: SparkSession, writer: CatalogWriter, run_id: str, known: Collection[str]
) -> tuple[list[Backup], list[str]]:
    """Put the rows of every import into a catalog that is being rebuilt.

    Returns the backups, which make them count, and the problems. `known`: ids of backups that the rebuild has
    from their own manifests.
    """
    backups: dict[str, Backup] = {}
    problems = []
    for import_id in writer.home.folders(f"{layout.IMPORTS_FOLDER}/"):
        try:
            try:
                made = read_import(writer.home, import_id)
            except NotFound:  # of a run that died before it
                continue
            spare = {b.backup_id for b in made.backups} & {*known, *backups}
            append(spark, writer, made, f"rebuild-{run_id}-{import_id}", spare=spare)
            backups |= {b.backup_id: b for b in made.backups if b.backup_id not in spare}
        except LakebackupError as error:
            problems.append(error.message)
    return list(backups.values()), problems


def write_rows(
    rows: DataFrame, table: str, storage: Storage, import_id: str, counters: Counters
) -> list[RowsFile]:
    """Write rows of a table as objects of an import; a row an object comes to the driver."""
    written = rows.mapInArrow(ChunkWriter(storage.uri, import_id, table, counters), WRITTEN)
    return [RowsFile(**row.asDict()) for row in written.collect()]


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """For `mapInArrow` over rows of a table: writes them as objects, one row of WRITTEN each."""

    destination_uri: str
    import_id: str
    table: str
    counters: Counters

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = self.counters(f"{self.table}-{task_number():06d}")
        for rows in in_chunks(batches, ARROW_SCHEMAS[self.table], ROWS_PER_FILE):
            chunk = self._put(rows)
            count(chunk.rows, 0)
            yield pa.RecordBatch.from_pylist([asdict(chunk)])
        settle()

    def _put(self, rows: pa.Table) -> RowsFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = layout.imported_path(self.import_id, self.table, task_number(), secrets.token_hex(4))
        open_storage(self.destination_uri).put(path, data, if_absent=True)
        return RowsFile(self.table, path, len(rows), len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class ChunkReader(PerNumber):
    """The rows of the object `chunks[number]`, verified whole."""

    destination_uri: str
    chunks: tuple[RowsFile, ...]
    counters: Counters

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        chunk = self.chunks[number]
        data = get_whole(open_storage(self.destination_uri), chunk.path, chunk.sha256)
        count = self.counters(f"{chunk.table}-{number:06d}")
        for batch in pq.read_table(pa.BufferReader(data)).to_batches(_ROWS_AT_ONCE):
            yield batch
            count(len(batch), 0)
