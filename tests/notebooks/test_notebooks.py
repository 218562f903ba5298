"""The notebooks run as they are, and what their charts show is looked at.

One runs always, on rows made by hand; all run as long tests, on a catalog that real backups made.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.support import kafka_truth as truth
from tests.support.catalogs import EPOCH
from tests.support.made_backups import MadeBackups, Record
from tests.support.notebooks import run

from lakebackup.rows.backups import Gap
from lakebackup_jobs.query import charts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from tests.support.notebooks import Shown
    from tests.support.runs import Lab

    from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.spark

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def backups(
    spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lab, str]]:
    """Two chains of two topics: offsets 60 to 79 of the first topic's partition 0 are lost between them."""
    from tests.support.runs import Lab

    lab = Lab(spark, broker.bootstrap, tmp_path_factory.mktemp("notebooks") / "backups", empty_catalog)
    orders, payments = (f"{name}-{uuid4().hex[:8]}" for name in ("orders", "payments"))
    for name in (orders, payments):
        truth.create_topic(broker.bootstrap, name, 2, retention_ms="-1")
    for turn in range(4):
        for name in (orders, payments):
            truth.produce(broker.bootstrap, name, [_order(40 * turn + n) for n in range(40)])
        if turn == 3:
            truth.delete_records(broker.bootstrap, orders, {0: 70})
        lab.backup(orders, payments)
    lab.verify()
    yield lab, orders
    for name in (orders, payments):
        truth.delete_topic(broker.bootstrap, name)


def _order(number: int) -> truth.Record:
    value = None if number == 150 else json.dumps({"order": number, "amount": 7 * number}).encode()
    return truth.Record(
        partition=number % 2,
        key=f"k{number % 30}".encode(),
        value=value,
        headers=(("trace", b"\x01"),),
        timestamp=1_795_262_400_000 + 1000 * number,
    )


@pytest.mark.long
def test_coverage_of_rows_made_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    made, began, day = MadeBackups(tmp_path), 1_795_262_400_000, 86_400_000
    made.backup([[Record(0, n, began + n) for n in range(5)]], end_ts=began + day)
    lost = made.backup(
        [[Record(0, n, began + 2 * day - n) for n in range(7, 10)]], full=True, end_ts=began + 2 * day
    )
    made.add(
        Gap(
            backup_id=lost,
            source="prod",
            scope="orders",
            epoch=EPOCH,
            region="0",
            from_position=5,
            to_position=7,
            reason="purged",
            from_ts=began + day,
            to_ts=began + 2 * day,
            bridged=False,
        )
    )
    made.backup([[Record(0, 10, began + 3 * day - 1)]], end_ts=began + 3 * day)
    made.flush()
    shown = run(FOLDER / "04_coverage_and_rpo.py", spark, destination=str(tmp_path))
    _, successes, gaps, hours = shown.tables
    assert {row["kind"] for row in successes} == {"full", "differential"}
    assert [(row["reason"], row["from_position"], row["to_position"]) for row in gaps] == [("purged", 5, 7)]
    # The full at the end of the gap can be restored at its own instant.
    assert [(row["scope"], round(float(row["lost_hours"]) * 3_600_000)) for row in hours] == [
        ("orders", day - 1)
    ]
    assert _drawn(shown) == {"restorable", "gap"}


@pytest.mark.kafka
@pytest.mark.long
def test_inventory(backups: tuple[Lab, str]) -> None:
    shown, lab = _run("01", backups), backups[0]
    listed, chains, storage, topics, unusable = shown.tables
    assert [row["kind"] for row in listed] == ["differential", "differential", "differential", "full"]
    assert [row["backups"] for row in chains] == [4]
    assert storage[0]["bytes"] == sum(f.stat().st_size for f in lab.folder.glob("lab/*/topics/**/*.data"))
    assert {row["scope"]: row["records"] for row in topics}[backups[1]] == 120 + (160 - 70 - 80 + 80)
    assert unusable == []
    assert _drawn(shown) == {"succeeded"}


@pytest.mark.kafka
@pytest.mark.long
def test_restore(backups: tuple[Lab, str], tmp_path: Path) -> None:
    lab, orders = backups
    target = {"topic": orders, "target": f"delta:{tmp_path}/restored"}
    shown = _run("02", backups, **target)
    points, chosen = shown.tables
    assert [row["number"] for row in points] == [4, 3, 2, 1]
    assert shown.names["plan"].refused is None
    assert shown.names["done"] is None
    assert not (tmp_path / "restored").exists()
    shown = _run("02", backups, **target, really="yes")
    assert shown.names["done"]["entries"] == sum(row["entries"] for row in chosen) == 90
    restored = lab.spark.read.format("delta").load(f"{tmp_path}/restored")
    assert restored.count() == 90


@pytest.mark.kafka
@pytest.mark.long
def test_ask(backups: tuple[Lab, str]) -> None:
    shown = _run("03", backups, topic=backups[1], key="k7")
    found, counted, latest = shown.tables
    held = [n for n in range(160) if n % 30 == 7]
    assert [json.loads(row["value"])["order"] for row in found] == sorted(held)
    assert {row["partition"]: row["last_offset"] for row in counted} == {0: 79, 1: 79}
    assert {row["key"] for row in latest} == {f"k{n}" for n in range(30)} - {"k0"}


@pytest.mark.kafka
@pytest.mark.long
def test_coverage(backups: tuple[Lab, str]) -> None:
    shown = _run("04", backups)
    lags, successes, gaps, hours = shown.tables
    assert all(row["present"] and row["lag_minutes"] >= 0 for row in lags)
    assert {row["kind"] for row in successes} == {"full", "differential"}
    assert [(row["scope"], row["region"], row["reason"], row["from_position"], row["to_position"])
            for row in gaps] == [(backups[1], "0", "purged", 60, 70)]  # fmt: skip
    assert max(hours, key=lambda row: row["lost_hours"])["scope"] == backups[1]
    assert _drawn(shown) == {"restorable", "gap"}


@pytest.mark.kafka
@pytest.mark.long
def test_growth(backups: tuple[Lab, str]) -> None:
    shown = _run("05", backups)
    growth, topics, pace = shown.tables
    assert sum(row["backups"] for row in growth) == 4
    assert sum(row["new_bytes"] for row in growth) == growth[0]["held_bytes"] == pace[0]["held_bytes"]
    assert len(topics) in (0, 2)  # by the records' times, which stand still
    assert {"added"} < _drawn(shown)


@pytest.mark.kafka
@pytest.mark.long
def test_retention(backups: tuple[Lab, str]) -> None:
    shown = _run("06", backups)
    policies, kept, listed, missed, removed = shown.tables
    assert (policies, missed, removed) == ([], [], [])
    assert [(row["status"], row["reason"], row["backups"]) for row in kept] == [("VALID", "no_limit", 4)]
    assert [row["number"] for row in listed] == [4, 3, 2, 1]


def _run(begins: str, backups: tuple[Lab, str], **widgets: str) -> Shown:
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith(begins))
    return run(path, backups[0].spark, destination=str(backups[0].folder), **widgets)


def _drawn(shown: Shown) -> set[str]:
    """The names of what is drawn in the one chart that was shown."""
    (page,) = shown.pages
    assert charts.script()[:1000] in page
    found = re.search(r"Plotly\.newPlot\(\s*\"[\w-]+\",\s*(\[.*?\]),\s+\{", page, re.DOTALL)
    assert found is not None
    return {trace["name"] for trace in json.loads(found[1])}
