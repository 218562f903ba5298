"""Spark's data source, called as Spark's own processes call it, without Java."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.sql_engine import shown_views
from lakebackup.sql_engine.guard.records import COLUMNS
from lakebackup_jobs.query import data_source
from lakebackup_jobs.query import record_query as ask
from pyspark_lakebackup import DefaultSource

if TYPE_CHECKING:
    from pathlib import Path

    from lakebackup_jobs.query.data_source import Split

TYPES = {
    "STRING": StringType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
}


@pytest.fixture
def backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeBackups:
    """Three backups of orders; every file is a split of its own."""
    monkeypatch.setattr(data_source, "_BYTES_A_TASK", 1)
    backups = MadeBackups(tmp_path)
    for first in range(0, 30, 10):
        backups.backup([run(first, first + 10), run(first, first + 5, 1)], end_ts=1000 * first + 9500)
    backups.flush()
    return backups


def run(first: int, end: int, partition: int = 0) -> list[Record]:
    return [Record(partition, n, 1000 * n, f"k{n % 7}".encode(), f"v{n}".encode()) for n in range(first, end)]


def source(backups: MadeBackups | None = None, **options: str) -> DefaultSource:
    path_option = {"path": str(backups.folder)} if backups else {}
    return DefaultSource(CaseInsensitiveDict(path_option | options))


def splits(backups: MadeBackups, **options: str) -> list[Split]:
    partitions = source(backups, **options).reader(schema_of(backups, **options)).partitions()
    copies: list[Split] = pickle.loads(pickle.dumps(list(partitions)))
    return copies


def schema_of(backups: MadeBackups, **options: str) -> StructType:
    """The schema as Spark parses it, built here since Spark needs a session for that."""
    pairs = (part.split() for part in source(backups, **options).schema().split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def rows(backups: MadeBackups, **options: str) -> list[dict[str, Any]]:
    reader = pickle.loads(pickle.dumps(source(backups, **options).reader(schema_of(backups, **options))))
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


def by_sql(backups: MadeBackups, sql: str) -> list[dict[str, Any]]:
    return ask.select(backups.reader(), sql).rows.read_all().to_pylist()


def test_rows_equal_those_of_records(backups: MadeBackups) -> None:
    def in_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        naive_records = [{**row, "time": row["time"].replace(tzinfo=None)} for row in records]
        return sorted(naive_records, key=lambda row: (row["partition"], row["kafka_offset"]))

    assert in_order(rows(backups, topic="orders")) == in_order(
        by_sql(backups, "SELECT * FROM records('orders')")
    )
    for as_of in ("1970-01-01T00:00:17Z", "20260101T000002Z"):
        expected = by_sql(backups, f"SELECT kafka_offset FROM records('orders', '{as_of}') WHERE key = 'k1'")
        records = rows(backups, topic="prod/orders", asOf=as_of, where="key = 'k1'", columns="kafka_offset")
        assert sorted(map(repr, records)) == sorted(map(repr, expected))
        assert records


def test_each_task_reads_its_own_files(backups: MadeBackups) -> None:
    task_splits = splits(backups, topic="orders")
    assert len(task_splits) == 6
    assert len(splits(backups, topic="orders", where="partition = 1 AND kafka_offset >= 10")) == 2
    assert len(splits(backups, topic="orders", where="kafka_offset > 99")) == 1
    assert rows(backups, topic="orders", where="kafka_offset > 99") == []


def test_tasks_read_the_catalog_version_of_the_plan(backups: MadeBackups) -> None:
    options = {"topic": "orders", "columns": "kafka_offset"}
    reader = source(backups, **options).reader(schema_of(backups, **options))
    planned = reader.partitions()
    backups.backup([run(0, 40)], full=True, low={0: 0})  # replaces every older file
    backups.flush()
    records = [row for split in planned for batch in reader.read(split) for row in batch.to_pylist()]
    assert len(records) == 45


def test_views_of_the_catalog_can_be_read(backups: MadeBackups) -> None:
    expected = by_sql(
        backups, "SELECT backup_id, number, started_time FROM backups WHERE number > 1 ORDER BY 2"
    )
    records = rows(backups, view="backups", columns="backup_id, number, started_time", where="number > 1")
    for row in records:
        row["started_time"] = row["started_time"].replace(tzinfo=None)
    assert sorted(records, key=lambda row: row["number"]) == expected
    assert "STRING" in source(backups, view="coverage").schema()


def test_the_columns_are_those_of_records(backups: MadeBackups) -> None:
    assert source(backups, topic="orders").schema() == ", ".join(f"{n} {kind}" for n, kind in COLUMNS.items())
    assert source(backups, topic="orders", columns=" Key,ts ").schema() == "key STRING, ts BIGINT"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t", "path": ""}, "Missing option path"),
        ({}, "option topic or the option view"),
        ({"topic": "t", "view": "files"}, "option topic or the option view"),
        ({"topic": "t", "pushFilters": "true"}, "no option pushFilters any more"),
        ({"topic": "t", "wehre": "true"}, "no option wehre.\nDid you mean where"),
        ({"topic": "t", "columns": "key, valeu"}, "Option columns: .*valeu.*\nDid you mean value"),
        ({"view": "coverag"}, "Option view: .*\nDid you mean coverage"),
        ({"view": "files", "asOf": "someday"}, "Option asOf: 'someday'"),
        ({"topic": "t", "where": "nope = 1"}, "Option where: .*nope"),
        ({"topic": "t", "where": "key ="}, "Option where: 'key ='"),
        ({"topic": "t", "where": "true) UNION ALL (SELECT * FROM files"}, "Option where: "),
        ({"topic": "t", "where": "reflect('java.lang.System', 'exit') = 'a'"}, "Option where: .*reflect"),
        ({"topic": "t", "where": "key IN (SELECT key FROM records('u'))"}, r"Option where: records\(…\)"),
        ({"view": "files", "where": "path IN (SELECT key FROM records('u'))"}, r"Option where: records\(…\)"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=message):
        source(**{"path": str(tmp_path), **options}).schema()


def test_missing_catalogs_topics_and_times_are_refused(backups: MadeBackups, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no catalog"):
        source(topic="t", path=str(tmp_path / "none")).reader(schema_of(backups, topic="t")).partitions()
    with pytest.raises(NotFound, match="topic 'order'"):
        splits(backups, topic="order")
    with pytest.raises(Refused, match="after the last backup"):
        splits(backups, topic="orders", asOf="2026-01-01")
    with pytest.raises(UsageProblem, match="takes no schema"):
        source(backups, topic="orders").reader(StructType())


@pytest.mark.parametrize("view", sorted(shown_views()))
def test_the_columns_of_every_view_have_types_of_arrow(view: str) -> None:
    read = data_source.Read.of({"path": "backups", "view": view})
    assert read.arrow_schema().names == list(read.columns)
