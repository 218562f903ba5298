"""The command itself is killed by SIGKILL at many moments of a backup and of a restore.

`make test` kills it in tests/stories (test_killed_backup.py, test_killed_restore.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support import kafka_truth as truth
from tests.support import translated
from tests.support.faults import catalog_rows, expire_leases, stored_records
from tests.support.kafka_truth import Record
from tests.support.processes import Run
from tests.support.runs import Lab

from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

PARTITIONS, EACH, VALUE = 4, 1_200, 10_000


@pytest.fixture(scope="module")
def source(broker: Broker) -> Iterator[str]:
    """A topic of 48 MB, which takes long enough to copy."""
    name = f"kill-{uuid4().hex[:8]}"
    truth.create_topic(broker.bootstrap, name, PARTITIONS, retention_ms="-1")
    values = [random.Random(i).randbytes(VALUE) for i in range(7)]
    rows = (
        Record(p, b"%d" % i, values[i % 7], (), 1_600_000_000_000 + i)
        for i in range(EACH)
        for p in range(PARTITIONS)
    )
    truth.produce(broker.bootstrap, name, rows)
    yield name
    truth.delete_topic(broker.bootstrap, name)


def backup_of(lab: Lab, topic: str) -> Run:
    return Run(
        lab, "backup", "topics", topic, "--repo", str(lab.folder), "--bootstrap-server", lab.bootstrap,
        "--source", "lab", "--target-size", "1MiB", "--codec", "null", "--lease-ttl", "5", "--groups", "none",
    )  # fmt: skip


def restore_of(lab: Lab, topic: str, copy: str) -> Run:
    return Run(
        lab, "restore", "topics", topic, "--repo", str(lab.folder), "--map", f"{topic}={copy}",
        "--to", f"kafka://{lab.bootstrap}", "--lease-ttl", "5",
    )  # fmt: skip


def all_or_nothing(lab: Lab) -> bool:
    """Whether the killed backup exists; checks that it does in every table or in none."""
    counts = {relation: len(rows) for relation, rows in catalog_rows(lab).items()}
    assert counts["backups"] in (0, 1)
    assert (counts["positions"], counts["scopes"]) == (PARTITIONS * counts["backups"], counts["backups"])
    assert (counts["files"] > 0) == (counts["backups"] == 1)
    return counts["backups"] == 1


@pytest.mark.parametrize("moment", ["records arrive", "it is on record"])
def test_restore_killed(lab: Lab, source: str, moment: str, topic: Callable[..., str]) -> None:
    lab.backup(source, codec="null", target_bytes=1 << 20)
    copy = topic("killed", partitions=PARTITIONS)
    run = restore_of(lab, source, copy)
    log = lab.folder / "catalog" / "restores" / "_delta_log"
    commits_before = len(list(log.glob("*.json")))
    reached = {
        "records arrive": lambda: any(ends(lab.bootstrap, copy)),
        "it is on record": lambda: len(list(log.glob("*.json"))) > commits_before,
    }
    run.kill_when(reached[moment], moment)
    expected = truth.contents(lab.bootstrap, source)
    assert_prefix(expected, truth.contents(lab.bootstrap, copy))
    expire_leases(lab.folder)
    assert lab.restore(source, maps={source: copy})["resumed"]
    assert truth.contents(lab.bootstrap, copy) == expected
    assert translated.assert_exact(lab, source, copy) == PARTITIONS * EACH


@pytest.mark.parametrize("moment", ["files are written", "the result is sealed", "records arrive"])
def test_restore_of_records_killed(lab: Lab, source: str, moment: str, topic: Callable[..., str]) -> None:
    """Every record carries the time of its query: after a kill all have the same, and each exists once."""
    lab.backup(source, codec="null", target_bytes=1 << 20)
    copy = topic("killed", partitions=PARTITIONS)
    sql = (
        "SELECT partition, key, concat(CAST(current_timestamp() AS STRING), left(key_hex, 0)) AS value, ts "
        f"FROM records('{source}')"
    )
    run = Run(
        lab, "restore", "topics", "--repo", str(lab.folder), "--map", f"{source}={copy}",
        "--to", f"kafka://{lab.bootstrap}", "--lease-ttl", "5", "--select-records", sql,
    )  # fmt: skip
    reached = {
        "files are written": lambda: any(lab.folder.glob("restores/*/plan/data/*.data")),
        "the result is sealed": lambda: any(lab.folder.glob("restores/*/plan/plan.json")),
        "records arrive": lambda: any(ends(lab.bootstrap, copy)),
    }
    run.kill_when(reached[moment], moment)
    expire_leases(lab.folder)
    assert lab.restore(records=sql, maps={source: copy})["resumed"]
    records = truth.contents(lab.bootstrap, copy)
    keys = [b"%d" % i for i in range(EACH)]
    assert {p: [row.key for row in rows] for p, rows in records.items()} == dict.fromkeys(
        range(PARTITIONS), keys
    )
    assert len({row.value for rows in records.values() for row in rows}) == 1


def assert_prefix(expected: dict[int, list[Record]], part: dict[int, list[Record]]) -> None:
    for partition, rows in part.items():
        assert rows == expected[partition][: len(rows)]


def ends(bootstrap: str, topic: str) -> Sequence[int]:
    """The high watermarks, which count records of open transactions too."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        with suppress(KafkaException):  # a new topic has no leader for a moment
            return [consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(PARTITIONS)]
        return []
    finally:
        consumer.close()


@pytest.mark.parametrize("seed", range(16))
def test_killed_at_any_time(lab: Lab, source: str, topic: Callable[..., str], seed: int) -> None:
    """Thirty-two kills: a backup and a restore each, at random moments after the lease was taken."""
    moments = random.Random(seed)
    expected = truth.contents(lab.bootstrap, source)
    lab.make_catalog()
    run = backup_of(lab, source)
    truth.until(lambda: any(lab.folder.glob("leases/source-lab/*")), "the lease", 120)
    time.sleep(moments.uniform(0, 12))
    run.kill()
    exists = all_or_nothing(lab)
    expire_leases(lab.folder)
    assert lab.backup(source, target_bytes=1 << 20)["entries"] == (0 if exists else PARTITIONS * EACH)
    assert stored_records(lab) == expected

    copy = topic("killed", partitions=PARTITIONS)
    run = restore_of(lab, source, copy)
    truth.until(lambda: any(lab.folder.glob("leases/restore-*/*")), "the lease", 120)
    time.sleep(moments.uniform(0, 12))
    run.kill()
    copied = truth.contents(lab.bootstrap, copy)
    assert_prefix(expected, copied)
    expire_leases(lab.folder)
    # The kill may come when the restore is complete, before the process ends.
    if not lab.sql("SELECT * FROM restores WHERE state = 'complete'"):
        lab.restore(source, maps={source: copy})
    assert truth.contents(lab.bootstrap, copy) == expected
