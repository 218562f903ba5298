"""From the records of a log to the latest committed value of each key, by Spark."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebackup.formats.logs.events import DEFAULT, DELETES, PUTS, TRUNCATES, WRITE
from lakebackup_jobs.logs.restore.splits import ENDS, WRITES, Latest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan
    from lakebackup_jobs.logs.restore.splits import LogShares

#: A row of a restored table, and of a full.
RESULT = (
    "table_id BIGINT, db STRING, name STRING, key BINARY, value BINARY, start_ts BIGINT, commit_ts BIGINT, "
    "seq BIGINT, sub INT"
)
COLUMNS = tuple(column.split()[0] for column in RESULT.split(", "))
_LATER = ("commit_ts", "seq", "sub")
_KEY = ("table_id", "key")
# Bytes that a task of a shuffle has, before they were compressed: at worst it holds all of them. Of more than
# 12 TiB it has more, and stays below what Arrow can have in an array up to 400 TB.
_PIECE = 64 << 20
_MOST_PIECES = 200_000
_TASKS, _BROADCAST = "spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold"


@contextmanager
def sized(spark: SparkSession, raw_bytes: int) -> Iterator[None]:
    """While the block runs, as many tasks behind a shuffle as `raw_bytes` need, and no side of a join goes to
    all of them unasked: Spark takes what tasks read for as little as the numbers of their shares.
    """
    count = pieces(raw_bytes)
    tasks, least = spark.conf.get(_TASKS) or "1", spark.conf.get(_BROADCAST) or "-1"
    spark.conf.set(_TASKS, str(max(count, int(tasks))))
    spark.conf.set(_BROADCAST, "-1")
    try:
        yield
    finally:
        spark.conf.set(_TASKS, tasks)
        spark.conf.set(_BROADCAST, least)


def pieces(raw_bytes: int) -> int:
    """In how many pieces the keys of so much of a log are dealt to tasks."""
    return min(_MOST_PIECES, raw_bytes // _PIECE + 1)


def changes(spark: SparkSession, shares: LogShares) -> DataFrame:
    """The latest change of each key that was committed in the span: COLUMNS without db and name, and `type`,
    PUTS or DELETES. Keys of which nothing was left when their whole table was emptied are not in it.

    Reading it raises Damaged when a value that was committed is not in the log.
    """
    from pyspark.sql import functions as sf

    # Tasks find the latest write of each key: Spark would sort all values to do so.
    tasks = int(spark.conf.get(_TASKS) or "1")
    latest = shares.frame(spark, WRITE).repartition(tasks, *_KEY).mapInArrow(Latest(), WRITES)
    latest = _behind_ends(latest, ends(spark, shares))
    apart = (sf.col("type") == PUTS) & sf.col("value").isNull()
    if shares.paths.get(DEFAULT):
        values = (
            shares.frame(spark, DEFAULT)
            .repartition(tasks, *_KEY, "start_ts")  # so that they are sorted once, not before it too
            .groupBy(*_KEY, "start_ts")
            .agg(sf.max("value").alias("stands_apart"))
        )
        latest = latest.join(values, [*_KEY, "start_ts"], "left")
        apart &= sf.col("stands_apart").isNull()
        value = sf.coalesce("value", "stands_apart")
    else:
        value = sf.col("value")
    value = (
        sf.when(sf.col("type") == DELETES, sf.lit(None))
        .when(apart, sf.raise_error(_lost()).cast("binary"))
        .otherwise(value)
    )
    return latest.select(*_KEY, value.alias("value"), "start_ts", *_LATER, "type")


def ends(spark: SparkSession, shares: LogShares) -> DataFrame | None:
    """When the whole table was last emptied, a row a table: table_id, `emptied` (a struct that compares).

    None when no table was.
    """
    from pyspark.sql import functions as sf

    if not shares.paths.get(ENDS):
        return None
    found = shares.frame(spark, ENDS).where(sf.col("type") == TRUNCATES)
    return found.groupBy("table_id").agg(sf.max(sf.struct(*_LATER)).alias("emptied"))


def state(
    spark: SparkSession, shares: LogShares, plan: LogRestorePlan, full: DataFrame | None = None
) -> DataFrame:
    """The latest committed value of each key at the end of the span: COLUMNS. `full`: what it stands on."""
    from pyspark.sql import functions as sf

    late = changes(spark, shares)
    rows = late.where(sf.col("type") == PUTS).drop("type")
    if full is not None:
        rows = meant(full, plan).drop("db", "name").join(late.select(*_KEY), [*_KEY], "left_anti")
        rows = _behind_ends(rows, ends(spark, shares)).unionByName(
            late.where(sf.col("type") == PUTS).drop("type")
        )
    return named(rows, plan)


def onto(spark: SparkSession, shares: LogShares, plan: LogRestorePlan, held: DataFrame) -> DataFrame:
    """What makes rows that are held as of the start of the span those as of its end: COLUMNS and `type`, PUTS
    (in the place of the key's row) or DELETES."""
    from pyspark.sql import functions as sf

    late = changes(spark, shares)
    found = named(late, plan)
    touched = held.where(_not_meant(plan) | sf.col("table_id").isin(list(plan.changed)))
    touched = touched.withColumn("type", sf.when(_not_meant(plan), DELETES).otherwise(PUTS))
    emptied = ends(spark, shares)
    if emptied is not None:
        gone = held.join(sf.broadcast(emptied), "table_id", "left_semi").withColumn("type", sf.lit(DELETES))
        touched = gone.unionByName(touched.join(sf.broadcast(emptied), "table_id", "left_anti"))
    elif not plan.changed:
        return found
    rest = touched.join(late.select(*_KEY), [*_KEY], "left_anti").drop("db", "name")
    return found.unionByName(named(rest, plan))


def named(rows: DataFrame, plan: LogRestorePlan) -> DataFrame:
    """Rows with the names that their tables have at the end of the span; null: the log does not tell."""
    from pyspark.sql import functions as sf

    names = rows.sparkSession.createDataFrame(
        [(table.table_id, table.db, table.name) for table in plan.tables],
        "table_id BIGINT, db STRING, name STRING",
    )
    rest = [name for name in rows.columns if name not in COLUMNS]
    return rows.join(sf.broadcast(names), "table_id", "left").select(*COLUMNS, *rest)


def meant(rows: DataFrame, plan: LogRestorePlan) -> DataFrame:
    """Those rows of a full that the restore is about: its tables, its keys."""
    from pyspark.sql import functions as sf

    rows = rows.where(~_not_meant(plan))
    for bound, inside in (("first_key", "__ge__"), ("beyond_key", "__lt__")):
        if text := plan.parameters[bound]:
            rows = rows.where(getattr(sf.col("key"), inside)(sf.lit(bytes.fromhex(text))))
    return rows


def _not_meant(plan: LogRestorePlan) -> Column:
    from pyspark.sql import functions as sf

    if plan.only is not None:
        return ~sf.col("table_id").isin(list(plan.only))
    return sf.col("table_id").isin(list(plan.without))


def _behind_ends(rows: DataFrame, emptied: DataFrame | None) -> DataFrame:
    """Rows that are later than the last time their whole table was emptied."""
    from pyspark.sql import functions as sf

    if emptied is None:
        return rows
    kept = sf.col("emptied").isNull() | (sf.struct(*_LATER) > sf.col("emptied"))
    return rows.join(sf.broadcast(emptied), "table_id", "left").where(kept).drop("emptied")


def _lost() -> Column:
    """What a task says of a value that is not there; `engine.failures` finds it again in Spark's error."""
    from pyspark.sql import functions as sf

    return sf.concat(
        sf.lit("lakebackup.errors.Damaged: The value of key "),
        sf.lower(sf.hex("key")),
        sf.lit(" of table "),
        sf.col("table_id").cast("string"),
        sf.lit(", written by the transaction of start ts "),
        sf.col("start_ts").cast("string"),
        sf.lit(" and committed at "),
        sf.col("commit_ts").cast("string"),
        sf.lit(", is not in the log."),
    )
