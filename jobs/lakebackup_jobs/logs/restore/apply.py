"""Finds the latest committed value of each key in the records of a log, with Spark.

Tasks first find the latest write of each key. A write without a value gets the value that its transaction
prewrote, by key and start ts. Writes before the last truncation of their table are dropped. A restore on top
of a full takes the full's row of each key that has no write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakebackup.encryption.objects import BackupKey
from lakebackup.formats.logs.events import DEFAULT, DELETES, PUT_TYPE, TRUNCATES, WRITE
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.worker import Cluster, session_on
from lakebackup_jobs.logs.restore.content import LogContent, pieces
from lakebackup_jobs.logs.restore.shares import CHANGES, ENDS, KEY, LATER, LOST, RESULT, WRITES, Latest
from lakebackup_jobs.targets.staged_changes import PATHS, SealChanges

COLUMNS = tuple(column.split()[0] for column in RESULT.split(", "))
_TASKS, _BROADCAST = "spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold"


@contextmanager
def sized(cluster: Cluster, raw_bytes: int) -> Iterator[None]:
    """Run the block with as many tasks after a shuffle as `raw_bytes` need, and without automatic broadcasts.

    Spark estimates the rows that tasks read by the size of their input, which is only numbers. So it would
    broadcast a side of a join that is too large. If one task can hold everything, nothing is changed.
    """
    count = pieces(raw_bytes)
    if count == 1:
        yield
        return
    spark = session_on(cluster)
    task_count, threshold = spark.conf.get(_TASKS) or "1", spark.conf.get(_BROADCAST) or "-1"
    spark.conf.set(_TASKS, str(max(count, int(task_count))))
    spark.conf.set(_BROADCAST, "-1")
    try:
        yield
    finally:
        spark.conf.set(_TASKS, task_count)
        spark.conf.set(_BROADCAST, threshold)


@dataclass(frozen=True, slots=True)
class Changes(LogContent):
    """A log's changes within a span, found by Spark.

    `full`: the rows at the start of the span, None if the log begins there. Reading raises Damaged when a
    committed value is missing from the log.
    """

    full: DataFrame | None = None

    @property
    def spark(self) -> SparkSession:
        if self.cluster is None:
            raise RuntimeError("Changes are found by Spark.")
        return session_on(self.cluster)

    def latest(self) -> DataFrame:
        """The latest change of each key that was committed in the span and that no truncation ended.

        Columns: COLUMNS without db and name, and `type`: PUTS or DELETES.
        """
        # Tasks find the latest write of each key, because Spark would sort all values to find it.
        task_count = int(self.spark.conf.get(_TASKS) or "1")
        latest = (
            self.shares.frame(self.spark, WRITE).repartition(task_count, *KEY).mapInArrow(Latest(), WRITES)
        )
        latest = _behind_ends(latest, self.emptied())
        is_missing = (sf.col("type") == PUT_TYPE) & sf.col("value").isNull()
        value = sf.col("value")
        if self.shares.shares.get(DEFAULT):
            values = (
                self.shares.frame(self.spark, DEFAULT)
                .repartition(task_count, *KEY, "start_ts")  # This way they are sorted only once.
                .groupBy(*KEY, "start_ts")
                .agg(sf.max("value").alias("prewritten"))
            )
            latest = latest.join(values, [*KEY, "start_ts"], "left")
            is_missing &= sf.col("prewritten").isNull()
            value = sf.coalesce("value", "prewritten")
        value = (
            sf.when(sf.col("type") == DELETES, sf.lit(None))
            .when(is_missing, sf.raise_error(_missing_value_error()).cast("binary"))
            .otherwise(value)
        )
        return latest.select(*KEY, value.alias("value"), "start_ts", *LATER, "type")

    def emptied(self) -> DataFrame | None:
        """The last truncation of each table: table_id, `emptied` (a struct of LATER). None: there is none."""
        if not self.shares.shares.get(ENDS):
            return None
        truncations = self.shares.frame(self.spark, ENDS).where(sf.col("type") == TRUNCATES)
        return truncations.groupBy("table_id").agg(sf.max(sf.struct(*LATER)).alias("emptied"))

    def rows(self) -> DataFrame:
        """The latest committed value of each key at the end of the span: COLUMNS."""
        latest = self.latest()
        rows = latest.where(sf.col("type") == PUT_TYPE).drop("type")
        if self.full is not None:
            below = (
                self._selected_rows(self.full)
                .drop("db", "name")
                .join(latest.select(*KEY), [*KEY], "left_anti")
            )
            rows = _behind_ends(below, self.emptied()).unionByName(rows)
        return self._with_names(rows)

    def changes_to(self, rows: DataFrame) -> DataFrame:
        """The changes that bring `rows`, the rows at the start of the span, to its end.

        Columns: COLUMNS and `type`: PUTS (replaces the row of the key) or DELETES.
        """
        latest, is_excluded = self.latest(), self._is_excluded()
        changes = self._with_names(latest)
        touched = rows.where(is_excluded | sf.col("table_id").isin(list(self.plan.changed)))
        touched = touched.withColumn("type", sf.when(is_excluded, DELETES).otherwise(PUT_TYPE))
        emptied = self.emptied()
        if emptied is not None:
            emptied_rows = rows.join(sf.broadcast(emptied), "table_id", "left_semi")
            touched = touched.join(sf.broadcast(emptied), "table_id", "left_anti")
            touched = emptied_rows.withColumn("type", sf.lit(DELETES)).unionByName(touched)
        elif not self.plan.changed:
            return changes
        unchanged = touched.join(latest.select(*KEY), [*KEY], "left_anti").drop("db", "name")
        return changes.unionByName(self._with_names(unchanged))

    def create(self, path: str) -> bool:  # noqa: ARG002
        return False

    def empties_tables(self) -> bool:
        emptied = self.emptied()
        return emptied is not None and emptied.limit(1).count() > 0

    def write_files(self, path: str, *, with_truncates: bool = True) -> dict[str, int]:
        rows = self._sorted_changes(with_truncates=with_truncates)
        with task_errors():
            rows.write.mode("overwrite").parquet(path)
            return {"entries": self.spark.read.schema(CHANGES).parquet(path).count()}

    def seal_files(self, uri: str, folder: str, key: BackupKey) -> list[str]:
        rows = self._sorted_changes(with_truncates=False)
        with task_errors():
            # The driver collects one row for each object.
            paths = rows.mapInArrow(SealChanges(uri, folder, key, CHANGES), PATHS).collect()
        return [row["path"] for row in paths]

    def _sorted_changes(self, *, with_truncates: bool) -> DataFrame:
        """The rows of files of changes (CHANGES), sorted within each partition."""
        if self.full is not None:
            rows = self.rows().withColumn("type", sf.lit(PUT_TYPE))
        else:
            rows = self._with_names(self.latest())
            emptied = self.emptied() if with_truncates else None
            if emptied is not None:
                last = emptied.select(
                    "table_id",
                    sf.lit(b"").alias("key"),
                    sf.lit(None).cast("binary").alias("value"),
                    sf.col("emptied.commit_ts").alias("start_ts"),
                    "emptied.*",
                    sf.lit(TRUNCATES).alias("type"),
                )
                rows = rows.unionByName(self._with_names(last))
        return rows.sortWithinPartitions("db", "name", "key")

    def _with_names(self, rows: DataFrame) -> DataFrame:
        """Add the names of the rows' tables at the end of the span; null: the log has no name."""
        names = self.spark.createDataFrame(
            [(table.table_id, table.db, table.name) for table in self.plan.tables],
            "table_id BIGINT, db STRING, name STRING",
        )
        extra_columns = [name for name in rows.columns if name not in COLUMNS]
        return rows.join(sf.broadcast(names), "table_id", "left").select(*COLUMNS, *extra_columns)

    def _selected_rows(self, rows: DataFrame) -> DataFrame:
        """The rows of a full that are within the restore's tables and keys."""
        rows = rows.where(~self._is_excluded())
        for bound, comparison in (("first_key", "__ge__"), ("beyond_key", "__lt__")):
            if text := self.plan.parameters[bound]:
                rows = rows.where(getattr(sf.col("key"), comparison)(sf.lit(bytes.fromhex(text))))
        return rows

    def _is_excluded(self) -> Column:
        """Whether the table of a row is not restored."""
        if self.plan.only is not None:
            return ~sf.col("table_id").isin(list(self.plan.only))
        return sf.col("table_id").isin(list(self.plan.without))


def _behind_ends(rows: DataFrame, emptied: DataFrame | None) -> DataFrame:
    """The rows that are later than the last truncation of their table."""
    if emptied is None:
        return rows
    is_later = sf.col("emptied").isNull() | (sf.struct(*LATER) > sf.col("emptied"))
    return rows.join(sf.broadcast(emptied), "table_id", "left").where(is_later).drop("emptied")


def _missing_value_error() -> Column:
    """The text of the error for a missing value, which `sql_engine.failures` recognizes in Spark's error."""
    text = f"lakebackup.errors.Damaged: {LOST}"
    return sf.format_string(text, sf.lower(sf.hex("key")), "table_id", "start_ts", "commit_ts")
