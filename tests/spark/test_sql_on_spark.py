"""A person's SQL on Spark: records(), the statements that the guard allows, and limits, as on DuckDB."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record
from tests.unit.catalog.sql_engine.test_guard import FUNCTIONS, plain

import lakebackup
from lakebackup.errors import Damaged, LakebackupError, TimedOut, TooLarge, UsageProblem
from lakebackup.plan.diff import DiffRequest
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.sql_engine.spark import run_checked, streamed
from lakebackup_jobs.query import record_query as ask
from lakebackup_jobs.query.record_diff import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands

pytestmark = pytest.mark.spark


def by_spark(backups: MadeBackups, spark: SparkSession, sql: str) -> list[dict[str, Any]]:
    return streamed(ask.select_on_spark(spark, backups.reader(), sql)).read_all().to_pylist()


def records(first: int, end: int, partition: int = 0) -> list[Record]:
    return [
        Record(partition, offset, 1000 * offset - 1, f"k{offset % 4}".encode(), b'{"n": %d}' % offset)
        for offset in range(first, end)
    ]


def test_spark_returns_what_duckdb_returns(tmp_path: Path, spark: SparkSession, cli: Commands) -> None:
    backups = MadeBackups(tmp_path)
    first = backups.backup([records(0, 10), records(0, 5, 1)])
    backups.backup([[Record(0, 10, -1, b"\xff", None, (("h", b"\xff"),))]])
    last = backups.backup([records(5, 20)], full=True, low={0: 5})
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
        reference = ask.select(backups.reader(), sql).rows.read_all().to_pylist()
        rows = by_spark(backups, spark, sql)
        for row in rows:
            if row.get("time"):
                row["time"] = row["time"].replace(tzinfo=None)
        assert rows == reference
        assert reference
    sql = "SELECT key FROM records('orders') WHERE kafka_offset = 7"
    assert cli.rows("sql", sql, "--repo", tmp_path, "--engine", "spark") == [{"key": "k3"}]

    request = DiffRequest(str(tmp_path), first, last)
    differences = [
        [
            (topic.totals() | {"files_opened": None}, topic.rows.read_all().to_pylist())
            for topic in run(request, spark=engine_session, reporter=quiet())
        ]
        for engine_session in (None, spark)
    ]
    assert differences[0] == differences[1]
    assert differences[0][0][0]["changed"]

    (path,) = (row["path"] for row in backups.reader().rows("list_files", backup_id=last))
    Path(tmp_path, path).unlink()
    with pytest.raises(Damaged, match="is missing"):
        by_spark(backups, spark, "SELECT count(*) FROM records('orders')")


ALLOWED: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "unit" / "catalog" / "sql_engine" / "guard_allowed.yml").read_text()
)
VIEWS = {
    "files": "SELECT 'd' AS destination, \"a1/b'c\" AS path, 'b1' AS backup_id, 10L AS bytes, 0L AS min_ts, "
    "1000L AS max_ts, 't' AS scope, TIMESTAMP '2024-01-02 03:04:05.678' AS at",
    "backups": "SELECT 'b1' AS backup_id, 1L AS number, 'complete' AS state, 5L AS end_ts",
}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    new_session = spark.newSession()
    new_session.conf.set("spark.sql.session.timeZone", "UTC")
    for name, text in VIEWS.items():
        new_session.sql(text).createOrReplaceTempView(name)
    yield new_session
    for name in VIEWS:
        new_session.catalog.dropTempView(name)


@pytest.mark.long
def test_functions_return_their_recorded_values_on_spark(session: SparkSession) -> None:
    relations = {name: session.table(name).columns for name in VIEWS}
    answers = {}
    for call, *_ in FUNCTIONS:
        text = check_select(f"SELECT {call} AS r FROM files", relations).text("spark")
        answers[call] = plain([tuple(row.asDict(True).values()) for row in session.sql(text).collect()])
    assert answers == {call: answer for call, answer, *_ in FUNCTIONS}


@pytest.mark.long
def test_a_connection_on_a_session(spark: SparkSession, tmp_path: Path) -> None:
    """Uses the suite's session: seconds for the parts of a connection that only Spark has."""
    backups = MadeBackups(tmp_path / "backups")
    backups.backup([[Record(0, n, n, b"k%d" % n, b"v") for n in range(5)]], end_ts=5)
    backups.flush()
    with lakebackup.connect(str(tmp_path / "backups"), engine=spark) as con:
        answer = con.sql("SELECT key FROM records('orders') WHERE partition = 0 ORDER BY key LIMIT 2")
        assert (
            answer.rows()
            == [row.asDict() for row in answer.spark().collect()]
            == [{"key": "k0"}, {"key": "k1"}]
        )
        con.register("files")
        assert spark.table("files").count() == con.sql("SELECT * FROM files").arrow().num_rows == 1
        result = con.restore("orders", to=f"delta:{tmp_path}/restored")
        assert result["entries"] == con.plan_restore("orders", to=f"dir:{tmp_path}/x").entries == 5
        entries = con.sql("SELECT action, outcome, command FROM audit").rows()
        assert entries == [{"action": "restore topics", "outcome": "ok", "command": None}]


def test_a_sessions_zone_changes_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    """Three hours of records, one of which the query needs: a wrong zone would choose another hour's
    files."""
    backups = MadeBackups(tmp_path)
    for hour in range(3):
        ts = 3_600_000 * hour
        backups.backup(
            [[Record(0, 60 * hour + n, ts + 60_000 * n, b"k", b"v") for n in range(60)]], end_ts=ts
        )
    backups.flush()
    sql = (
        "SELECT kafka_offset, time, CAST(time AS STRING) AS text FROM records('orders') "
        "WHERE time >= '1970-01-01 01:00' AND time < '1970-01-01 02:00' ORDER BY kafka_offset"
    )
    with lakebackup.connect(str(tmp_path)) as con:
        expected = con.sql(sql).rows()
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        with lakebackup.connect(str(tmp_path), engine=spark) as con:
            rows = con.sql(sql).rows()
            assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [{**row, "time": row["time"].replace(tzinfo=None)} for row in rows] == expected
    assert [row["kafka_offset"] for row in rows] == list(range(60, 120))


@pytest.mark.parametrize("case", ALLOWED, ids=lambda case: case["sql"][:60])
def test_allowed_statements_run_on_spark(case: dict[str, Any], session: SparkSession) -> None:
    relations = {name: session.table(name).columns for name in VIEWS}
    rows = [list(row) for row in session.sql(check_select(case["sql"], relations).text("spark")).collect()]
    for row in rows:
        row[:] = [float(value) if isinstance(value, Decimal) else value for value in row]
    if "rows" in case:
        assert rows == case["rows"]


def test_duplicate_columns_and_times_are_kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark converts times to the machine's zone, and keeps one value for each column name."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        sql = "SELECT 1 AS n, 2 AS n, TIMESTAMP '2026-01-01' AS t, array(TIMESTAMP '2026-01-01') AS several"
        rows = streamed(spark.sql(sql)).read_all()
    finally:
        monkeypatch.undo()
        time.tzset()
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    assert rows.schema.names == ["n", "n", "t", "several"]
    assert [column.to_pylist() for column in rows.columns] == [[1], [2], [instant], [[instant]]]


def test_a_plan_on_spark_has_a_row_for_each_line(session: SparkSession) -> None:
    checked = check_select("EXPLAIN SELECT path FROM files", {"files": session.table("files").columns})
    lines = streamed(run_checked(session, checked)).read_all().column("plan").to_pylist()
    assert lines[0] == "== Physical Plan =="
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("SELECT bytes / (bytes - 10) AS x FROM files", UsageProblem, "Division by zero"),
        ("SELECT CAST(path AS INT) AS x FROM files", UsageProblem, "cannot be cast"),
        ("SELECT array_repeat(path, bytes) AS x FROM files", UsageProblem, "\nline 1: SELECT array_repeat"),
        ("SELECT date_format(at, repeat('y', 1000000)) AS x FROM files", UsageProblem, "Fail to recognize"),
        ("SELECT add_months(DATE '2024-01-01', 1000000) AS x FROM files", UsageProblem, "out of range"),
        ("SELECT sequence(1, bytes * 1000000000000) AS x FROM files", TooLarge, "more memory than Spark has"),
        ("SELECT repeat('a', 100000) RLIKE '^(a|a)*$' AS x FROM files", TooLarge, "more memory"),
    ],
)
def test_an_error_on_spark_is_translated_and_reported_once(
    sql: str,
    kind: type[LakebackupError],
    message: str,
    session: SparkSession,
    capfd: pytest.CaptureFixture[str],
) -> None:
    checked = check_select(sql, {name: session.table(name).columns for name in VIEWS})
    with pytest.raises(kind, match=re.escape(message)) as failed:
        streamed(run_checked(session, checked), sql).read_all()
    assert not re.search(r"java|py4j|SQLSTATE|spark\.sql|\[[A-Z_.]+\]", failed.value.message)
    assert capfd.readouterr().err == ""


LONG = """
    WITH a AS (SELECT 1 AS x UNION ALL SELECT count(*) FROM files),
         b AS (SELECT p.x + q.x + r.x + s.x AS x FROM a p CROSS JOIN a q CROSS JOIN a r CROSS JOIN a s),
         c AS (SELECT p.x + q.x + r.x + s.x AS x FROM b p CROSS JOIN b q CROSS JOIN b r CROSS JOIN b s)
    SELECT count(*) AS n FROM c p CROSS JOIN c q WHERE p.x + q.x <> 5
"""


@pytest.mark.long
def test_the_timeout_applies_on_spark(spark: SparkSession, tmp_path: Path, cli: Commands) -> None:
    MadeBackups(tmp_path).flush()
    words = ["sql", LONG, "--repo", str(tmp_path), "--engine", "spark", "--timeout", "5s"]
    assert "within 5 s" in cli.fails(TimedOut.exit_code, *words)
    assert spark.sql("SELECT 1 AS x").collect()[0]["x"] == 1
