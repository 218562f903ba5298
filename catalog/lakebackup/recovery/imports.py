"""Rows that came from elsewhere, kept in the destination, so that a lost catalog gets them back.

`imports/<id>/` holds the rows as they went into the tables; the sealed `import.json` says what they add up
to, holds the rows of `backups`, and alone makes the import exist.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, LakebackupError, NotFound
from lakebackup.recovery.exchange import RowsFile
from lakebackup.rows.backups import Backup
from lakebackup.rows.tables import ARROW_SCHEMAS, OF_BACKUPS, as_row, from_row, spark_columns
from lakebackup.rules import layout
from lakebackup.rules.layout import FORMAT
from lakebackup.sql_engine.worker import settle
from lakebackup.storage import open_storage
from lakebackup.store.delta_append import ROWS_PER_FILE
from lakebackup.store.manifest import get_sealed, put_sealed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.storage import Storage
    from lakebackup.store.writer import CatalogWriter

# What a task that wrote rows tells of each object it wrote.
WRITTEN = "table STRING, path STRING, rows BIGINT, bytes BIGINT, sha256 STRING"
_HINT = "Take it from another copy of the destination, or import once more what it was made from."


@dataclass(frozen=True, slots=True)
class Import:
    """One import; `at` in us since 1970 UTC, `given` says what it was made from."""

    import_id: str
    at: int
    actor: str
    given: str
    backups: tuple[Backup, ...]
    chunks: tuple[RowsFile, ...]


def write_import(storage: Storage, made: Import) -> None:
    """Put `import.json`: from now on the import exists, and goes on until its rows are in the catalog."""
    content = {
        "format": FORMAT,
        "import_id": made.import_id,
        "at": made.at,
        "actor": made.actor,
        "given": made.given,
        "backups": [as_row(row) for row in made.backups],
        "chunks": [asdict(chunk) for chunk in made.chunks],
    }
    put_sealed(storage, layout.import_path(made.import_id), content)


def read_import(storage: Storage, import_id: str) -> Import:
    """The import of that id. Raises NotFound, Damaged, UsageProblem (a newer version wrote it)."""
    path = layout.import_path(import_id)
    content = get_sealed(storage, path)
    try:
        return Import(
            **{
                **content,
                "backups": tuple(from_row(Backup, row) for row in content["backups"]),
                "chunks": tuple(RowsFile(**chunk) for chunk in content["chunks"]),
            }
        )
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"{path}: {error}.", hint=_HINT) from error


def sweep(storage: Storage, made: Import) -> None:
    """Take away what an earlier run of the same import put down that died before the import came to exist."""
    ours = {layout.import_path(made.import_id), *(chunk.path for chunk in made.chunks)}
    for found in list(storage.list(layout.import_folder(made.import_id))):
        if found.path not in ours:
            storage.delete(found.path)


def append(
    spark: SparkSession,
    writer: CatalogWriter,
    made: Import,
    transaction: str,
    *,
    spare: Collection[str] = (),
) -> None:
    """Make the rows of an import, but those of `backups`, rows of the tables, once for each `transaction`.

    Rows of the backups `spare` are left out, and rows that are there already.
    """
    from lakebackup.sql_engine.spark import SparkEngine

    engine = SparkEngine(spark, writer.catalog_uri)
    for table in sorted({chunk.table for chunk in made.chunks}):
        chunks = tuple(chunk for chunk in made.chunks if chunk.table == table)
        numbers = spark.range(0, len(chunks), 1, len(chunks))
        rows = numbers.mapInArrow(ChunkReader(writer.home.uri, chunks), spark_columns(table))
        if table == "destinations":
            rows = rows.join(engine.table(table).select("destination"), "destination", "left_anti")
        elif table not in OF_BACKUPS:
            rows = rows.subtract(engine.table(table))
        elif spare:
            rows = rows.where(~rows["backup_id"].isin(list(spare)))
        writer.append_frame(table, rows, f"{transaction}-{table}")


def rebuild(
    spark: SparkSession, writer: CatalogWriter, run_id: str, known: Collection[str]
) -> tuple[list[Backup], list[str]]:
    """Put the rows of every import that came to exist into a catalog that is being made again.

    Returns the backups, which make them count, and what stood against it. `known`: ids of backups that the
    rebuild has from their own manifests.
    """
    backups: dict[str, Backup] = {}
    problems = []
    for import_id in writer.home.folders(f"{layout.IMPORTS_FOLDER}/"):
        try:
            with suppress(NotFound):  # of a run that died before it
                made = read_import(writer.home, import_id)
                spare = {b.backup_id for b in made.backups} & {*known, *backups}
                append(spark, writer, made, f"rebuild-{run_id}-{import_id}", spare=spare)
                backups |= {b.backup_id: b for b in made.backups if b.backup_id not in spare}
        except LakebackupError as error:
            problems.append(error.message)
    return list(backups.values()), problems


def write_rows(rows: DataFrame, table: str, storage: Storage, import_id: str) -> list[RowsFile]:
    """Write rows of a table as objects of an import; a row an object comes to the driver."""
    written = rows.mapInArrow(ChunkWriter(storage.uri, import_id, table), WRITTEN)
    return [RowsFile(**row.asDict()) for row in written.collect()]


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """For `mapInArrow` over rows of a table: writes them as objects, one row of WRITTEN each."""

    destination_uri: str
    import_id: str
    table: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        schema = ARROW_SCHEMAS[self.table]
        held: list[pa.RecordBatch] = []
        for batch in batches:
            if batch.num_rows:
                held.append(batch.select(schema.names))
            if sum(map(len, held)) >= ROWS_PER_FILE:
                yield pa.RecordBatch.from_pylist([self._put(task, held)])
                held = []
        if held:
            yield pa.RecordBatch.from_pylist([self._put(task, held)])
        settle()

    def _put(self, task: int, batches: list[pa.RecordBatch]) -> Mapping[str, Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.Table.from_batches(batches).cast(ARROW_SCHEMAS[self.table])
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        path = layout.imported_path(self.import_id, self.table, task, secrets.token_hex(4))
        open_storage(self.destination_uri).put(path, data, if_absent=True)
        return asdict(RowsFile(self.table, path, len(rows), len(data), hashlib.sha256(data).hexdigest()))


@dataclass(frozen=True, slots=True)
class ChunkReader:
    """For `mapInArrow` over numbers: the rows of the objects of these numbers, each verified whole."""

    destination_uri: str
    chunks: tuple[RowsFile, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        storage = open_storage(self.destination_uri)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                chunk = self.chunks[number]
                data = storage.get(chunk.path)
                if hashlib.sha256(data).hexdigest() != chunk.sha256:
                    raise Damaged(f"{chunk.path} does not match the SHA-256 in import.json.", hint=_HINT)
                yield from pq.read_table(pa.BufferReader(data)).to_batches()
        settle()
