"""A backup and a restore die before each of their steps in turn; the next run makes everything right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from tests.support import kafka_truth as truth
from tests.support import translated
from tests.support.faults import Killed, expire_leases, rows_of, shown, stored, watched
from tests.support.runs import Lab

from lakebackup.errors import Busy, EnvironmentProblem, Refused
from lakebackup.store import CatalogReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup_jobs.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]
MOST_STEPS = 100


def test_a_backup(
    spark: SparkSession, broker: Broker, empty_catalog: Path, topic: Make, tmp_path: Path
) -> None:
    name = topic("killed-backup", partitions=2)
    truth.produce(broker.bootstrap, name, rows_of(2, 40))
    before = truth.contents(broker.bootstrap, name)
    died_at: list[str] = []
    for number in range(1, MOST_STEPS):
        lab = Lab(spark, broker.bootstrap, tmp_path / str(number), empty_catalog)
        with watched(tmp_path / f"steps-{number}", kill_at=number) as steps:
            with suppress(Killed, EnvironmentProblem):
                lab.backup(name, parallelism=2)
            if not steps.dead:
                assert stored(lab) == before
                break
        *taken, last = steps.taken()[:number]
        died_at.append(last)
        exists = "commit backups" in taken
        seen = {relation: len(rows) for relation, rows in shown(lab).items()}
        assert seen == {
            "backups": exists, "files": 2 * exists, "positions": 2 * exists, "scopes": exists, "gaps": 0,
        }, f"killed before {last!r}, step {number}"  # fmt: skip
        if "put lease source" in taken and taken.count("put lease source") < 3:
            with pytest.raises(Busy, match="source-lab is in use"):
                lab.backup(name)
        expire_leases(lab.folder)
        again = lab.backup(name)
        assert again["entries"] == (0 if exists else 80), f"after a kill before {last!r}, step {number}"
        assert stored(lab) == before
    assert {
        "put lease source", "put data", "put keys", "put part", "put manifest.json", "put lease catalog",
        "commit destinations", "put rows of files", "commit files", "commit backups", "put complete",
    } <= set(died_at)  # fmt: skip
    assert {"commit positions", "commit scopes"} & set(died_at)  # they are taken at one time, in any order


def test_a_restore(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("killed-restore", partitions=2)
    truth.produce(lab.bootstrap, name, rows_of(2, 30))
    lab.backup(name)
    truth.produce(lab.bootstrap, name, [r for r in rows_of(2, 25, start=30) if r.partition == 1])
    lab.backup(name)
    before = truth.contents(lab.bootstrap, name)
    settings = truth.settings(lab.bootstrap, name)
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    # A transaction holds a whole file: so many records may be there of partition 0, and of partition 1.
    whole = ({0, 30}, {0, 30, 55})
    groups = {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    forgotten = 0
    died_at: list[str] = []
    for number in range(1, MOST_STEPS):
        copy = f"copy-{number}-of-{name}"
        with watched(tmp_path / f"steps-{number}", kill_at=number) as steps:
            with suppress(Killed, EnvironmentProblem):
                lab.restore(name, maps={name: copy})
            if not steps.dead:
                assert truth.contents(lab.bootstrap, copy) == before
                assert translated.assert_exact(lab, name, copy) == 85
                break
        *taken, last = steps.taken()[:number]
        died_at.append(last)
        where = f"killed before {last!r}, step {number}"
        found = truth.contents(lab.bootstrap, copy)
        for partition, sizes in enumerate(whole):
            rows = found.get(partition, [])
            assert len(rows) in sizes, where
            assert rows == before[partition][: len(rows)], where
        expire_leases(lab.folder)
        begun, complete = (taken.count("commit restores") >= n for n in (1, 2))
        if complete:
            forgotten += "delete_group" not in taken
            with pytest.raises(Refused, match="holds records already"):
                lab.restore(name, maps={name: copy})
        else:
            assert lab.restore(name, maps={name: copy})["resumed"] == begun, where
        assert truth.contents(lab.bootstrap, copy) == before, where
        assert translated.assert_exact(lab, name, copy) == 85, where
        assert truth.settings(lab.bootstrap, copy) == settings, where
        admin.delete_topics([copy])[copy].result(30)
    assert {
        "put lease restore", "create_topic", "put rows of restores", "commit restores", "begin transaction",
        "commit transaction", "after transaction", "alter_settings", "delete_group",
    } <= set(died_at)  # fmt: skip
    opened = CatalogReader.open(str(lab.folder))
    assert opened is not None
    assert opened.rows("open_restores") == []
    # Killed when all was on record, a restore leaves its empty group to the broker's own retention.
    left = {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    assert len([group for group in left - groups if group.startswith("lakebackup-restore")]) == forgotten
