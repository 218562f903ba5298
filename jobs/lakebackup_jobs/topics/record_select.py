"""A restore by SELECT of records: Spark computes the result once, and the restore reads what Spark wrote.

Spark writes the result as data files below the restore's folder, in the format of a backup. The rest is a
plain restore of these files. A run that is interrupted before the plan's index is written computes the result
again, because the target holds no record yet. A run that is interrupted later never does, so a SELECT whose
answer changes (a clock, a random number, newer backups) cannot restore a mixture of two answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakebackup.encryption.objects import BackupKey
from lakebackup.errors import UsageProblem
from lakebackup.plan.topics.record_select import counting, order_of, require_columns
from lakebackup.plan.topics.request import RestoreRequest, read_parts
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.spark import streamed
from lakebackup.storage import Storage
from lakebackup.store.plan_file import write_plan_file
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup_jobs.lifecycle.tasks.plan_shares import clear
from lakebackup_jobs.query.record_query import select_on_spark
from lakebackup_jobs.topics.tasks.stage import STAGED, Stage

_SAMPLE = 5
_ORDERS = {
    "source": "as the topic held them",
    "query": "the SELECT's ORDER BY",
    "kafka_offset": "by kafka_offset",
    "unknown": "none: the SELECT joins or aggregates; add ORDER BY or the column kafka_offset",
}


class RecordSelect:
    """The SELECT of a restore on Spark. Its columns are checked here; nothing is computed yet.

    `plan` is the plan of a restore of the topic that the SELECT reads. Raises UsageProblem (the SELECT does
    not return records), NotFound.
    """

    def __init__(
        self, spark: SparkSession, reader: CatalogReader, request: RestoreRequest, plan: RestorePlan
    ) -> None:
        self._spark, self._reader, self._plan = spark, reader, plan
        self._sql, self._by_key = str(request.records), request.repartition
        with _own_errors():
            self._rows = self._shaped(select_on_spark(spark, self._reader, self._sql, exact=True))

    def stage(self, storage: Storage, restore_id: str, key: BackupKey | None) -> RestorePlan:
        """Compute the result and write it as data files, which `key` encrypts. Returns the plan that restores
        these files."""
        (topic,), folder = self._plan.topics, layout.restore_folder(restore_id)
        clear(storage, folder)
        regions = None if self._by_key else topic.regions
        stage = Stage(storage.uri, folder, destination_id(storage), topic.scope, topic.epoch, regions, key)
        with _own_errors():
            files = self._rows.mapInArrow(stage, STAGED).localCheckpoint()
            ordered = files.orderBy("scope", "epoch", "region", "start_position", "path")
            file = write_plan_file([streamed(ordered)])
        parts = tuple(read_parts(self._reader.with_rows("selected", file)))
        return replace(self._plan, file=file, topics=(replace(topic, parts=parts),))

    def preview(self) -> dict[str, Any]:
        """Return, for a dry run, what each partition gets, what is left out, and the first records."""
        (topic,) = self._plan.topics
        size = sum((sf.coalesce(sf.length(name), sf.lit(0)) for name in ("key", "value")), sf.lit(0))
        with _own_errors():
            # The driver collects one row for each partition, and a few records.
            result_counts = self._rows.groupBy("partition").agg(
                sf.count("*").alias("records"), sf.sum(size).alias("bytes")
            )
            result_by_partition = {row["partition"]: row.asDict() for row in result_counts.collect()}
            sample = [_printable(row.asDict()) for row in self._rows.limit(_SAMPLE).collect()]
            topic_counts = select_on_spark(self._spark, self._reader, counting(self._sql, topic.scope))
            topic_by_partition = {row["partition"]: row.asDict() for row in topic_counts.collect()}
        partitions = [
            {"partition": number, "held": 0, "left_out": None, "records": 0, "bytes": 0}
            | topic_by_partition.get(number, {})
            | result_by_partition.get(number, {})
            for number in sorted({*topic_by_partition, *result_by_partition})
        ]
        return {
            "records": sum(row["records"] for row in partitions),
            "record_bytes": sum(row["bytes"] for row in partitions),
            "order": _ORDERS[order_of(self._sql)],
            "partitions": partitions,
            "sample": sample,
        }

    def _shaped(self, rows: DataFrame) -> DataFrame:
        """Give the result the columns and types of records, and their order."""
        types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        require_columns(types, by_key=self._by_key)
        names = {name.lower(): kind for name, kind in types.items()}
        (topic,) = self._plan.topics
        if "partition" not in names:  # the key decides, so that records of one key stay together
            rows = rows.withColumn(
                "partition", sf.coalesce(sf.pmod(sf.hash("key"), sf.lit(topic.regions)), sf.lit(0))
            )
        if order_of(self._sql) == "kafka_offset":
            rows = rows.repartition("partition").sortWithinPartitions("partition", "kafka_offset")
        ts = sf.col("ts") if "ts" in names else sf.unix_millis(sf.current_timestamp())
        return rows.select(
            sf.col("partition").cast("bigint").alias("partition"),
            sf.col("key").cast("binary").alias("key"),
            sf.col("value").cast("binary").alias("value"),
            (sf.col("headers") if "headers" in names else sf.lit(None)).cast("string").alias("headers"),
            (sf.unix_millis(ts) if names.get("ts") == "timestamp" else ts).cast("bigint").alias("ts"),
        )


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _text(value) if isinstance(value, (bytes, bytearray)) else value for name, value in row.items()
    }


def _text(value: bytes | bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


@contextmanager
def _own_errors() -> Iterator[None]:
    """Turn Spark's errors about the SELECT into a UsageProblem."""
    try:
        with task_errors():
            yield
    except PySparkException as error:
        text = next(iter(str(error).strip().splitlines()), "")
        raise UsageProblem(
            f"--select-records failed on Spark: {text[:500]}", hint="Correct the SELECT."
        ) from None
