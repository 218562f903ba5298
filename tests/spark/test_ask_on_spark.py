"""records('topic') on Spark gives what it gives on DuckDB: the same files, read by tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import Damaged
from lakebackup.plan.diff import DiffRequest
from lakebackup.sql_engine.spark import streamed
from lakebackup_jobs.query import record_query as ask
from lakebackup_jobs.query.record_diff import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands

pytestmark = pytest.mark.spark


def by_spark(made: MadeBackups, spark: SparkSession, sql: str) -> list[dict[str, Any]]:
    return streamed(ask.select_on_spark(spark, made.reader(), sql)).read_all().to_pylist()


def records(first: int, end: int, partition: int = 0) -> list[Record]:
    return [
        Record(partition, offset, 1000 * offset - 1, f"k{offset % 4}".encode(), b'{"n": %d}' % offset)
        for offset in range(first, end)
    ]


def test_it_is_what_duckdb_gives(tmp_path: Path, spark: SparkSession, cli: Commands) -> None:
    made = MadeBackups(tmp_path)
    first = made.backup([records(0, 10), records(0, 5, 1)])
    made.backup([[Record(0, 10, -1, b"\xff", None, (("h", b"\xff"),))]])
    last = made.backup([records(5, 20)], full=True, low={0: 5})
    for sql in (
        "SELECT * FROM records('orders') ORDER BY partition, kafka_offset",
        """
        SELECT a.kafka_offset, f.bytes
        FROM records('orders', '1970-01-01T00:00:02Z') AS a
        JOIN records('orders', '20260101T000002Z') AS b
        ON a.kafka_offset = b.kafka_offset AND a.partition = b.partition
        JOIN files AS f ON f.path = a.path
        WHERE a.key = 'k1' AND b.key LIKE 'k%'
        ORDER BY 1, 2
        """,
    ):
        reference = ask.select(made.reader(), sql).rows.read_all().to_pylist()
        found = by_spark(made, spark, sql)
        for row in found:
            if row.get("time"):
                row["time"] = row["time"].replace(tzinfo=None)
        assert found == reference
        assert reference
    sql = "SELECT key FROM records('orders') WHERE kafka_offset = 7"
    assert cli.rows("sql", sql, "--from", tmp_path, "--engine", "spark") == [{"key": "k3"}]

    request = DiffRequest(str(tmp_path), first, last)
    told = [
        [
            (topic.totals() | {"files_opened": None}, topic.rows.read_all().to_pylist())
            for topic in run(request, spark=one)
        ]
        for one in (None, spark)
    ]
    assert told[0] == told[1]
    assert told[0][0][0]["changed"]

    (path,) = (row["path"] for row in made.reader().rows("list_files", backup_id=last))
    Path(tmp_path, path).unlink()
    with pytest.raises(Damaged, match="is missing"):
        by_spark(made, spark, "SELECT count(*) FROM records('orders')")
