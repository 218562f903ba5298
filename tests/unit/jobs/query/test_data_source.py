"""The data source of Spark as Spark's own processes call it, without Java."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import NotFound, Refused, UsageProblem
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
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeBackups:
    """Three backups of orders; every file is a split of its own."""
    monkeypatch.setattr(data_source, "_BYTES_A_TASK", 1)
    made = MadeBackups(tmp_path)
    for first in range(0, 30, 10):
        made.backup([run(first, first + 10), run(first, first + 5, 1)], end_ts=1000 * first + 9500)
    made.flush()
    return made


def run(first: int, end: int, partition: int = 0) -> list[Record]:
    return [Record(partition, n, 1000 * n, f"k{n % 7}".encode(), f"v{n}".encode()) for n in range(first, end)]


def source(made: MadeBackups | None = None, **options: str) -> DefaultSource:
    place = {"path": str(made.folder)} if made else {}
    return DefaultSource(CaseInsensitiveDict(place | options))


def splits(made: MadeBackups, **options: str) -> list[Split]:
    found = source(made, **options).reader(schema_of(made, **options)).partitions()
    copies: list[Split] = pickle.loads(pickle.dumps(list(found)))
    return copies


def schema_of(made: MadeBackups, **options: str) -> StructType:
    """What Spark makes of the schema, which needs a session."""
    pairs = (part.split() for part in source(made, **options).schema().split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def rows(made: MadeBackups, **options: str) -> list[dict[str, Any]]:
    reader = pickle.loads(pickle.dumps(source(made, **options).reader(schema_of(made, **options))))
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


def by_sql(made: MadeBackups, sql: str) -> list[dict[str, Any]]:
    return ask.select(made.reader(), sql).rows.read_all().to_pylist()


def test_it_is_what_records_gives(made: MadeBackups) -> None:
    def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        plain = [{**row, "time": row["time"].replace(tzinfo=None)} for row in found]
        return sorted(plain, key=lambda row: (row["partition"], row["kafka_offset"]))

    assert in_order(rows(made, topic="orders")) == in_order(by_sql(made, "SELECT * FROM records('orders')"))
    for as_of in ("1970-01-01T00:00:17Z", "20260101T000002Z"):
        wanted = by_sql(made, f"SELECT kafka_offset FROM records('orders', '{as_of}') WHERE key = 'k1'")
        found = rows(made, topic="prod/orders", asOf=as_of, where="key = 'k1'", columns="kafka_offset")
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
        assert found


def test_each_task_reads_its_own_files(made: MadeBackups) -> None:
    found = splits(made, topic="orders")
    assert len(found) == 6
    assert len(splits(made, topic="orders", where="partition = 1 AND kafka_offset >= 10")) == 2
    assert len(splits(made, topic="orders", where="kafka_offset > 99")) == 1
    assert rows(made, topic="orders", where="kafka_offset > 99") == []


def test_tasks_see_the_catalog_that_was_planned_with(made: MadeBackups) -> None:
    options = {"topic": "orders", "columns": "kafka_offset"}
    reader = source(made, **options).reader(schema_of(made, **options))
    planned = reader.partitions()
    made.backup([run(0, 40)], full=True, low={0: 0})  # in the place of every older file
    made.flush()
    found = [row for split in planned for batch in reader.read(split) for row in batch.to_pylist()]
    assert len(found) == 45


def test_views_of_the_catalog(made: MadeBackups) -> None:
    wanted = by_sql(made, "SELECT backup_id, number, started_time FROM backups WHERE number > 1 ORDER BY 2")
    found = rows(made, view="backups", columns="backup_id, number, started_time", where="number > 1")
    for row in found:
        row["started_time"] = row["started_time"].replace(tzinfo=None)
    assert sorted(found, key=lambda row: row["number"]) == wanted
    assert "STRING" in source(made, view="coverage").schema()


def test_the_columns_are_those_of_records(made: MadeBackups) -> None:
    assert source(made, topic="orders").schema() == ", ".join(f"{n} {kind}" for n, kind in COLUMNS.items())
    assert source(made, topic="orders", columns=" Key,ts ").schema() == "key STRING, ts BIGINT"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t", "path": ""}, "Missing option path"),
        ({}, "option topic or the option view"),
        ({"topic": "t", "view": "files"}, "option topic or the option view"),
        ({"topic": "t", "pushFilters": "yes"}, "Option pushFilters: 'yes'"),
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


@dataclass(frozen=True)
class EqualTo:
    """A filter as Spark 4.1 has them; 4.0 has none."""

    attribute: tuple[str, ...]
    value: Any


class In(EqualTo):
    pass


class StringStartsWith(EqualTo):
    pass


class StringContains(EqualTo):
    pass


def test_spark_4_1_pushes_its_filters(made: MadeBackups) -> None:
    options = {"topic": "orders", "columns": "partition, kafka_offset, value"}
    options["where"] = "kafka_offset < 12 OR partition = 9"
    assert not hasattr(source(made, **options).reader(schema_of(made, **options)), "pushFilters")
    options["pushFilters"] = "true"
    reader: Any = source(made, **options).reader(schema_of(made, **options))
    filters = [
        EqualTo(("partition",), 1), In(("kafka_offset",), (10, 12)), StringStartsWith(("value",), "v"),
        StringContains(("value",), "9"), EqualTo(("time",), object()),
    ]  # fmt: skip
    assert reader.pushFilters(filters) == filters  # Spark applies what is not understood, and the rest again
    (split,) = reader.partitions()
    found = [row for batch in reader.read(split) for row in batch.to_pylist()]
    assert [(row["partition"], row["kafka_offset"]) for row in found] == [(1, 10)]


def test_what_is_not_there(made: MadeBackups, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no catalog"):
        source(topic="t", path=str(tmp_path / "none")).reader(schema_of(made, topic="t")).partitions()
    with pytest.raises(NotFound, match="topic 'order'"):
        splits(made, topic="order")
    with pytest.raises(Refused, match="after the last backup"):
        splits(made, topic="orders", asOf="2026-01-01")
    with pytest.raises(UsageProblem, match="takes no schema"):
        source(made, topic="orders").reader(StructType())
