"""From the records of a log to the latest committed value of each key, by Spark."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from lakebackup.formats.logs.events import DEFAULT, DELETES, PUTS, TRUNCATES, WRITE
from lakebackup.sql_engine.delta.new_table import create_table
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.worker import session_on
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.logs.restore.small import WriteChanges, WriteTable
from lakebackup_jobs.logs.restore.splits import CHANGES, ENDS, KEY, LATER, LOST, RESULT, WRITES, Latest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan
    from lakebackup.sql_engine.worker import Cluster
    from lakebackup_jobs.logs.restore.splits import LogSplits
    from lakebackup_jobs.targets import Held
    from lakebackup_jobs.targets.delta import DeltaTarget

COLUMNS = tuple(column.split()[0] for column in RESULT.split(", "))
# Uncompressed bytes per task of a shuffle, all of which it may hold in memory. Beyond 12 TiB a task gets
# more, which fits into an array of Arrow's up to 400 TB.
_PIECE = 64 << 20
_MOST_PIECES = 200_000
_TASKS, _BROADCAST = "spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold"


@contextmanager
def sized(cluster: Cluster, raw_bytes: int) -> Iterator[None]:
    """While the block runs: as many tasks after a shuffle as `raw_bytes` need, and no automatic broadcasts.

    Spark would broadcast a side of a join because it takes what tasks read for as small as their numbers;
    what one task can hold may be.
    """
    count = pieces(raw_bytes)
    if count == 1:
        yield
        return
    spark = session_on(cluster)
    tasks, least = spark.conf.get(_TASKS) or "1", spark.conf.get(_BROADCAST) or "-1"
    spark.conf.set(_TASKS, str(max(count, int(tasks))))
    spark.conf.set(_BROADCAST, "-1")
    try:
        yield
    finally:
        spark.conf.set(_TASKS, tasks)
        spark.conf.set(_BROADCAST, least)


def pieces(raw_bytes: int) -> int:
    """The number of tasks over which the keys of so many bytes of a log are split."""
    return min(_MOST_PIECES, raw_bytes // _PIECE + 1)


# Name in the summary -> metric of the commit to a table.
_METRICS = {
    "inserted": "numTargetRowsInserted",
    "updated": "numTargetRowsUpdated",
    "deleted": "numTargetRowsDeleted",
}


@dataclass(frozen=True, slots=True)
class Changes:
    """A log's changes within a span: a Content of a target, whose summary counts `entries` among others.

    `full`: the rows at the start of the span, None where the log begins there. `before`: what the target
    already holds. Reading raises Damaged when a committed value is missing from the log.
    """

    cluster: Cluster
    splits: LogSplits
    plan: LogRestorePlan
    full: DataFrame | None
    before: Held | None
    after: Held

    @property
    def spark(self) -> SparkSession:
        return session_on(self.cluster)

    @property
    def commit(self) -> Mapping[str, Any]:
        """The commit itself records what the table holds."""
        return {"userMetadata": self.after.text()}

    @property
    def gone(self) -> list[int]:
        """Tables that were dropped within the span."""
        return [table for table in self.plan.without if table in self.plan.changed]

    def latest(self) -> DataFrame:
        """The latest change of each key that was committed in the span: COLUMNS without db and name, and
        `type`, PUTS or DELETES. Changes before the last truncation of their table are left out."""
        # Tasks find the latest write of each key: Spark would sort all values to do so.
        tasks = int(self.spark.conf.get(_TASKS) or "1")
        latest = self.splits.frame(self.spark, WRITE).repartition(tasks, *KEY).mapInArrow(Latest(), WRITES)
        latest = _behind_ends(latest, self.emptied())
        apart = (sf.col("type") == PUTS) & sf.col("value").isNull()
        value = sf.col("value")
        if self.splits.paths.get(DEFAULT):
            values = (
                self.splits.frame(self.spark, DEFAULT)
                .repartition(tasks, *KEY, "start_ts")  # so that they are sorted once, not before it too
                .groupBy(*KEY, "start_ts")
                .agg(sf.max("value").alias("prewritten"))
            )
            latest = latest.join(values, [*KEY, "start_ts"], "left")
            apart &= sf.col("prewritten").isNull()
            value = sf.coalesce("value", "prewritten")
        value = (
            sf.when(sf.col("type") == DELETES, sf.lit(None))
            .when(apart, sf.raise_error(_lost()).cast("binary"))
            .otherwise(value)
        )
        return latest.select(*KEY, value.alias("value"), "start_ts", *LATER, "type")

    def emptied(self) -> DataFrame | None:
        """When each table was last truncated: table_id, `emptied` (a struct that compares); None: never."""
        if not self.splits.paths.get(ENDS):
            return None
        found = self.splits.frame(self.spark, ENDS).where(sf.col("type") == TRUNCATES)
        return found.groupBy("table_id").agg(sf.max(sf.struct(*LATER)).alias("emptied"))

    def rows(self) -> DataFrame:
        """The latest committed value of each key at the end of the span: COLUMNS."""
        latest = self.latest()
        rows = latest.where(sf.col("type") == PUTS).drop("type")
        if self.full is not None:
            below = self._meant(self.full).drop("db", "name").join(latest.select(*KEY), [*KEY], "left_anti")
            rows = _behind_ends(below, self.emptied()).unionByName(rows)
        return self._named(rows)

    def onto(self, held: DataFrame) -> DataFrame:
        """The changes that bring `held`, rows as of the start of the span, to its end: COLUMNS and `type`,
        PUTS (replaces the key's row) or DELETES."""
        latest, left_out = self.latest(), self._left_out()
        found = self._named(latest)
        touched = held.where(left_out | sf.col("table_id").isin(list(self.plan.changed)))
        touched = touched.withColumn("type", sf.when(left_out, DELETES).otherwise(PUTS))
        emptied = self.emptied()
        if emptied is not None:
            gone = held.join(sf.broadcast(emptied), "table_id", "left_semi")
            touched = touched.join(sf.broadcast(emptied), "table_id", "left_anti")
            touched = gone.withColumn("type", sf.lit(DELETES)).unionByName(touched)
        elif not self.plan.changed:
            return found
        rest = touched.join(latest.select(*KEY), [*KEY], "left_anti").drop("db", "name")
        return found.unionByName(self._named(rest))

    @property
    def is_small(self) -> bool:
        """Whether one task does it, without SQL."""
        return self.full is None and pieces(self.plan.raw_bytes) == 1

    def create(self, path: str) -> bool:
        """Create the table at a path, if one task can find all rows; whether it did."""
        if not self.is_small:
            return False
        (done,) = run_all(WriteTable(self.splits, self.plan.tables, path), range(1), self.cluster)
        info = {**self.commit, "operationMetrics": {"numOutputRows": str(done.entries)}}
        create_table(open_storage(path, private=False), arrow_schema(RESULT), [done.added], info)
        return True

    def in_table(self, table: DeltaTarget) -> dict[str, int]:
        """The counts of the commit."""
        metrics = table.metrics()
        counts = {name: int(metrics[metric]) for name, metric in _METRICS.items() if metric in metrics}
        entries = int(metrics.get("numOutputRows", 0)) if self.before is None else sum(counts.values())
        return {"entries": entries, **counts}

    def write_files(self, path: str, *, whole: bool = True) -> dict[str, int]:
        """Write the latest change of each key as Parquet files of CHANGES, replacing those in the folder.

        `type`: P, D (the value is null), or T (the key is empty): the table was truncated, so its keys
        without a change have no value any more. T is left out unless `whole`.
        """
        if self.is_small:
            storage = open_storage(path)
            for left in list(storage.list("")):
                storage.delete(left.path)
            job = WriteChanges(self.splits, self.plan.tables, path, whole)
            (done,) = run_all(job, range(1), self.cluster)
            return {"entries": done.entries}
        if self.full is not None:
            rows = self.rows().withColumn("type", sf.lit(PUTS))
        else:
            rows = self._named(self.latest())
            emptied = self.emptied() if whole else None
            if emptied is not None:
                last = emptied.select(
                    "table_id",
                    sf.lit(b"").alias("key"),
                    sf.lit(None).cast("binary").alias("value"),
                    sf.col("emptied.commit_ts").alias("start_ts"),
                    "emptied.*",
                    sf.lit(TRUNCATES).alias("type"),
                )
                rows = rows.unionByName(self._named(last))
        with task_errors():
            rows.sortWithinPartitions("db", "name", "key").write.mode("overwrite").parquet(path)
            return {"entries": self.spark.read.schema(CHANGES).parquet(path).count()}

    def _named(self, rows: DataFrame) -> DataFrame:
        """Rows with their tables' names at the end of the span; null: the log has none."""
        names = self.spark.createDataFrame(
            [(table.table_id, table.db, table.name) for table in self.plan.tables],
            "table_id BIGINT, db STRING, name STRING",
        )
        rest = [name for name in rows.columns if name not in COLUMNS]
        return rows.join(sf.broadcast(names), "table_id", "left").select(*COLUMNS, *rest)

    def _meant(self, rows: DataFrame) -> DataFrame:
        """The rows of a full within the restore's tables and keys."""
        rows = rows.where(~self._left_out())
        for bound, inside in (("first_key", "__ge__"), ("beyond_key", "__lt__")):
            if text := self.plan.parameters[bound]:
                rows = rows.where(getattr(sf.col("key"), inside)(sf.lit(bytes.fromhex(text))))
        return rows

    def _left_out(self) -> Column:
        """Whether a row's table is left out of the restore."""
        if self.plan.only is not None:
            return ~sf.col("table_id").isin(list(self.plan.only))
        return sf.col("table_id").isin(list(self.plan.without))


def _behind_ends(rows: DataFrame, emptied: DataFrame | None) -> DataFrame:
    """Rows later than the last truncation of their table."""
    if emptied is None:
        return rows
    kept = sf.col("emptied").isNull() | (sf.struct(*LATER) > sf.col("emptied"))
    return rows.join(sf.broadcast(emptied), "table_id", "left").where(kept).drop("emptied")


def _lost() -> Column:
    """The error of a missing value; `sql_engine.failures` recognizes it in Spark's error."""
    text = f"lakebackup.errors.Damaged: {LOST}"
    return sf.format_string(text, sf.lower(sf.hex("key")), "table_id", "start_ts", "commit_ts")
