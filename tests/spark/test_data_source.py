"""The data source `lakebackup` of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import Damaged, UsageProblem
from lakebackup.sql_engine.failures import task_errors
from lakebackup_jobs.query import record_query as ask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.spark


def run(first: int, end: int, partition: int = 0) -> list[Record]:
    headers = (("h", b"x"), ("h", None))
    return [
        Record(partition, n, 1000 * n - 1, f"k{n % 4}".encode(), b'{"n": %d}' % n, headers)
        for n in range(first, end)
    ]


def sorted_rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in frame.orderBy("partition", "kafka_offset").collect()]
    for row in rows:
        if row.get("time"):
            row["time"] = row["time"].replace(tzinfo=None)
    return rows


@pytest.mark.long
def test_the_data_source_returns_what_records_returns(tmp_path: Path, spark: SparkSession) -> None:
    """Spark finds the source without registration, also from SQL. One test, since each read starts
    processes."""
    backups = MadeBackups(tmp_path)
    backups.backup([run(0, 10), run(0, 5, 1)])
    backups.backup([[Record(0, 10, -1, b"\xff", None)]])
    last = backups.backup(
        [run(5, 20)], full=True, low={0: 5}
    )  # a new chain, from before the end of the first
    reader = backups.reader()

    def by_sql(sql: str) -> list[dict[str, Any]]:
        return ask.select(reader, f"{sql} ORDER BY partition, kafka_offset").rows.read_all().to_pylist()

    source = spark.read.format("lakebackup").option("topic", "orders")
    assert sorted_rows(source.load(str(tmp_path))) == by_sql("SELECT * FROM records('orders')")

    spark.sql(f"""
        CREATE OR REPLACE TEMPORARY VIEW some_orders USING lakebackup OPTIONS (
            path '{tmp_path}', topic 'orders', asOf '1970-01-01T00:00:02Z',
            where "key = 'k1' AND kafka_offset >= 1", columns 'partition, kafka_offset, key, time'
        )
    """)
    expected = by_sql(
        "SELECT partition, kafka_offset, key, time FROM records('orders', '1970-01-01T00:00:02Z') "
        "WHERE key = 'k1' AND kafka_offset >= 1"
    )
    assert sorted_rows(spark.table("some_orders")) == expected
    assert expected

    views = spark.read.format("lakebackup").option("view", "backups").option("columns", "backup_id")
    assert {row.backup_id for row in views.load(str(tmp_path)).collect()} >= {last}

    with pytest.raises(UsageProblem, match="no option wehre"), task_errors():
        spark.read.format("lakebackup").option("wehre", "true").load(str(tmp_path))

    for file in tmp_path.rglob("*.data"):
        file.unlink()
    with pytest.raises(Damaged, match="is missing"), task_errors():
        source.load(str(tmp_path)).count()


class Numbers(DataSource):
    """The numbers 0 to 4, each with the conditions that Spark gave for the scan."""

    @classmethod
    def name(cls) -> str:
        return "numbers_with_conditions"

    def schema(self) -> str:
        return "number INT, conditions STRING"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return NumbersReader()


class NumbersReader(DataSourceReader):
    conditions = ""

    def pushFilters(self, filters: Sequence[Filter]) -> Sequence[Filter]:  # noqa: N802 - Spark's name
        self.conditions = " ".join(map(repr, filters))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self.conditions)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        return ((number, partition.value) for number in range(5))


@pytest.mark.long
def test_spark_still_mixes_up_the_conditions_of_two_queries(spark: SparkSession) -> None:
    """When this fails, Spark is mended, and the source can take conditions: see docs/adr/0018. Long: only a
    new Spark can change it."""
    import tests.spark.test_data_source as module
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # Spark's workers cannot import the tests
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        spark.dataSource.register(Numbers)
        numbers = spark.read.format(Numbers.name()).load()
        assert [row.number for row in numbers.where("number > 2").collect()] == [3, 4]
        conditions = {row.conditions for row in numbers.collect()}
    finally:
        spark.conf.unset(setting)
        cloudpickle.unregister_pickle_by_value(module)
    assert all("GreaterThan" in text for text in conditions), conditions
