"""The rows of prunes, made again from their tombstones when the catalog was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebackup.errors import LakebackupError
from lakebackup.rows.tables import spark_columns
from lakebackup.store.tombstones import RemovalReader, prune_ids, read_prune

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup.store.writer import CatalogWriter


def rebuild_prunes(spark: SparkSession, writer: CatalogWriter, run_id: str) -> tuple[list[str], set[str]]:
    """Put floors and removals of every prune that came to exist into the catalog, done or not; returns what
    stood against it, and the ids of the backups that went whole. The files of a prune whose tombstones are
    damaged count as still there."""
    problems: list[str] = []
    gone: set[str] = set()
    for name in prune_ids(writer.home):
        transaction = f"rebuild-{run_id}-{name}"
        try:
            prune = read_prune(writer.home, name)
            numbers = spark.range(0, len(prune.chunks), 1, max(1, len(prune.chunks)))
            reader = RemovalReader(writer.home.uri, prune.chunks)
            rows = numbers.mapInArrow(reader, spark_columns("removals"))
            writer.append_frame("removals", rows, transaction)
        except LakebackupError as error:
            problems.append(error.message)
            continue
        writer.append(prune.floors, transaction)
        gone.update(backup_id for backup_id, _ in prune.backups)
    return problems, gone
