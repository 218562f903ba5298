"""The tables and charts of the notebooks on a catalog of real backups.

Notebooks that take a Spark session get one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.support import kafka_truth as truth
from tests.support.catalogs import EPOCH
from tests.support.made_backups import MadeBackups, Record
from tests.support.notebooks import FOLDER, NotebookOutput, run

from lakebackup.rows.backups import Gap
from lakebackup_jobs.query.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from tests.support.runs import Lab

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(autouse=True)
def _own_ipython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs IPython without the profile of this machine."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.fixture(scope="module")
def backups(
    spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lab, str]]:
    """Four backups of two topics. Offsets 60 to 69 of the first topic's partition 0 are lost before the last
    backup."""
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


def test_the_coverage_of_rows_made_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, start_ts, day = MadeBackups(tmp_path), 1_795_262_400_000, 86_400_000
    repository.backup([[Record(0, n, start_ts + n) for n in range(5)]], end_ts=start_ts + day)
    backup_id = repository.backup(
        [[Record(0, n, start_ts + 2 * day - n) for n in range(7, 10)]], full=True, end_ts=start_ts + 2 * day
    )
    repository.add(
        Gap(
            backup_id=backup_id,
            source="prod",
            scope="orders",
            epoch=EPOCH,
            region="0",
            from_position=5,
            to_position=7,
            reason="purged",
            from_ts=start_ts + day,
            to_ts=start_ts + 2 * day,
            bridged=False,
        )
    )
    repository.backup([[Record(0, 10, start_ts + 3 * day - 1)]], end_ts=start_ts + 3 * day)
    repository.flush()
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path))
    output = run(FOLDER / "03_coverage_and_rpo.py")
    _, successes, gaps, hours = output.tables
    assert {row["kind"] for row in successes} == {"full", "differential"}
    assert [(row["reason"], row["from_position"], row["to_position"]) for row in gaps] == [("purged", 5, 7)]
    # The full at the end of the gap can be restored at its own instant.
    assert [(row["scope"], round(float(row["lost_hours"]) * 3_600_000)) for row in hours] == [
        ("orders", day - 1)
    ]
    assert _trace_names(*output.charts) == {"restorable", "gap"}


@pytest.mark.kafka
def test_the_inventory_of_real_backups(backups: tuple[Lab, str], monkeypatch: pytest.MonkeyPatch) -> None:
    lab, orders = backups
    output = _run("01_inventory", lab, monkeypatch)
    listed, chains, unusable, storage, topics, growth, pace = output.tables
    assert [row["kind"] for row in listed] == ["differential", "differential", "differential", "full"]
    assert [row["backups"] for row in chains] == [4]
    assert unusable == []
    assert storage[0]["bytes"] == sum(f.stat().st_size for f in lab.folder.glob("lab/*/topics/**/*.data"))
    assert {row["scope"]: row["records"] for row in topics}[orders] == 120 + (160 - 70 - 80 + 80)
    assert sum(row["backups"] for row in growth) == 4
    assert sum(row["new_bytes"] for row in growth) == growth[0]["held_bytes"] == pace[0]["held_bytes"]
    runs, stored_bytes = output.charts
    assert _trace_names(runs) == {"succeeded"}
    assert {"added"} < _trace_names(stored_bytes)


@pytest.mark.kafka
def test_the_records_of_real_backups(backups: tuple[Lab, str], monkeypatch: pytest.MonkeyPatch) -> None:
    lab, orders = backups
    output = _run("02_records", lab, monkeypatch, topic=orders, key="k7")
    history, partitions, latest = output.tables
    assert [json.loads(row["value"])["order"] for row in history] == [n for n in range(160) if n % 30 == 7]
    assert {row["partition"]: row["last_offset"] for row in partitions} == {0: 79, 1: 79}
    assert {row["key"] for row in latest} == {f"k{n}" for n in range(30)} - {"k0"}


@pytest.mark.kafka
def test_the_coverage_of_real_backups(backups: tuple[Lab, str], monkeypatch: pytest.MonkeyPatch) -> None:
    lab, orders = backups
    output = _run("03_coverage_and_rpo", lab, monkeypatch)
    lags, successes, gaps, hours = output.tables
    assert all(row["present"] and row["lag_minutes"] >= 0 for row in lags)
    assert {row["kind"] for row in successes} == {"full", "differential"}
    assert [(row["scope"], row["region"], row["reason"], row["from_position"], row["to_position"])
            for row in gaps] == [(orders, "0", "purged", 60, 70)]  # fmt: skip
    assert max(hours, key=lambda row: row["lost_hours"])["scope"] == orders
    assert _trace_names(*output.charts) == {"restorable", "gap"}


@pytest.mark.kafka
def test_the_retention_of_real_backups(backups: tuple[Lab, str], monkeypatch: pytest.MonkeyPatch) -> None:
    policies, statuses, listed, missed, removed = _run("04_retention", backups[0], monkeypatch).tables
    assert (policies, missed, removed) == ([], [], [])
    assert [(row["status"], row["reason"], row["backups"]) for row in statuses] == [("VALID", "no_limit", 4)]
    assert [row["number"] for row in listed] == [4, 3, 2, 1]


@pytest.mark.kafka
def test_a_restore_from_real_backups(
    backups: tuple[Lab, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, orders = backups
    output = _run(
        "05_restore",
        lab,
        monkeypatch,
        topic=orders,
        target=f"delta:{tmp_path}/restored",
        key_prefix="k7",
        masked_target=f"delta:{tmp_path}/masked",
        really_restore=True,
    )
    points, _ = output.tables
    assert [row["number"] for row in points] == [4, 3, 2, 1]
    assert output.names["plan"].refused is None
    restored = lab.spark.read.format("delta").load(f"{tmp_path}/restored")
    assert restored.count() == output.names["done"]["entries"] == 90
    masked = lab.spark.read.format("delta").load(f"{tmp_path}/masked").collect()
    assert masked
    assert {bytes(row["key"]) for row in masked} == {b"k7"}
    assert {json.loads(bytes(row["value"]))["amount"] for row in masked} == {0}


def _run(name: str, lab: Lab, monkeypatch: pytest.MonkeyPatch, **parameters: object) -> NotebookOutput:
    monkeypatch.setenv("LAKEBACKUP_REPO", str(lab.folder))
    return run(FOLDER / f"{name}.py", spark=lab.spark, **parameters)


def _trace_names(chart: Chart) -> set[str]:
    """The names of the traces of a chart."""
    assert chart.figure is not None
    return {trace["name"] for trace in chart.figure["data"]}
