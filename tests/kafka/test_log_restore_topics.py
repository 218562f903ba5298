"""Restores of a change feed's log into topics: a record for each key, once, however often one is cut off."""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from tests.support.chosen import chosen
from tests.support.command_line import quiet
from tests.support.faults import Killed, _InWorker, expire_leases, watched
from tests.support.kafka_truth import contents
from tests.support.made_changes import MadeChanges, delete, named, put, truncated

from lakebackup.errors import LakebackupError, Refused
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.restore import job as restore
from lakebackup_jobs.targets import change_topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ORDERS = [put(1, b"a", 10, b"1"), put(1, b"b", 11, b"2"), put(1, b"a", 12, b"3"), delete(1, b"c", 13)]
ITEMS = [put(2, b"gone", 14, b"x"), truncated(2, 15), put(2, b"", 16, b"")]


class Topics:
    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.prefix = f"p{uuid.uuid4().hex[:8]}."
        self.made = MadeChanges(folder, CatalogWriter(spark, str(folder)), domain="ms")

    def restore(self, **asked: Any) -> dict[str, Any]:
        request = LogRestoreRequest(
            destination=str(self.folder),
            name="shop",
            target=f"kafka://{self.broker.bootstrap}?prefix={self.prefix}&partitions=2",
            **asked,
        )
        return restore.run(request, spark=self.spark, reporter=quiet())

    def held(self, name: str) -> list[tuple[bytes | None, bytes | None, Any, int]]:
        """Key, value, commit ts and time of each record of a table's topic."""
        found = contents(self.broker.bootstrap, f"{self.prefix}shop.{name}").values()
        rows = [
            (record.key, record.value, dict(record.headers)["commit_ts"], record.timestamp)
            for records in found
            for record in records
        ]
        return sorted(rows, key=lambda row: (row[3], row[0]))


@pytest.fixture
def topics(spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path: Path) -> Topics:
    shutil.copytree(empty_catalog, tmp_path / "backups" / "catalog")
    made = Topics(spark, broker, tmp_path / "backups")
    made.made.flush([*ORDERS, *ITEMS], 20, names=[named(1, "orders", 5), named(2, "items", 5)])
    return made


def test_a_record_a_key_and_what_goes_on(topics: Topics) -> None:
    topics.restore()
    assert topics.held("orders") == [
        (b"b", b"2", b"11", 11),
        (b"a", b"3", b"12", 12),
        (b"c", None, b"13", 13),
    ]
    assert topics.held("items") == [(b"", b"", b"16", 16)]
    assert topics.restore()["done_before"]
    topics.made.flush([put(1, b"b", 25, b"4"), delete(1, b"a", 26)], 30)
    with pytest.raises(Refused, match=r"in \(0, 20\]"):
        topics.restore(end_ts=30)
    topics.restore(start_ts=20, end_ts=30)
    assert [row[:2] for row in topics.held("orders")][3:] == [(b"b", b"4"), (b"a", None)]
    topics.made.flush([truncated(1, 35)], 40)
    with pytest.raises(Refused, match="emptied"):
        topics.restore(start_ts=30, end_ts=40)


@pytest.mark.parametrize(
    "at",
    chosen(
        [
            "put staged.json",
            "put held.json",
            "commit transaction",
            "after transaction",
            "put held.json #2",
            "put held.json #3",
        ],
        always=["after transaction", "put held.json #3"],
    ),
)
def test_what_is_cut_off_is_gone_on_with(topics: Topics, tmp_path: Path, at: str) -> None:
    real = change_topics.ProduceJob
    with watched(tmp_path / "steps", kill_at=at) as steps, suppress(Killed, LakebackupError):
        inside = mock.patch.object(
            change_topics, "ProduceJob", lambda **named: _InWorker(steps, real(**named))
        )
        with inside:
            topics.restore()
    assert steps.dead
    expire_leases(topics.folder)
    if "transaction" in at:
        with pytest.raises(Refused, match=r"in \(0, 20\] into these topics was cut off"):
            topics.restore(end_ts=18)
    topics.restore()
    left = {found.name for found in topics.folder.glob("restores/log-*/**/*")}
    assert not left & {"staged.json"}
    assert not [name for name in left if name.endswith(".parquet")]
    assert [row[0] for row in topics.held("orders")] == [b"b", b"a", b"c"]
    assert [row[0] for row in topics.held("items")] == [b""]
