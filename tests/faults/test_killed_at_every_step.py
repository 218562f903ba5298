"""A backup and a restore die before each of their steps in turn; the next run makes everything right.

Before steps that leave a state of their own behind, that is; the long tests go through every single step.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from tests.support import kafka_truth as truth
from tests.support import translated
from tests.support.faults import Killed, expire_leases, rows_of, shown, stored, watched
from tests.support.runs import Lab

from lakebackup.errors import Busy, EnvironmentProblem, Refused
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.targets.topics import group_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.kafka_truth import Record

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

LAST = 75
EVERY = tuple(pytest.param(number, marks=pytest.mark.long) for number in range(1, LAST + 1))
# What each of these leaves is of another kind; what the others leave is of one with the step before.
BACKUP = (
    "put begun.json", "put data", "put part", "put manifest.json", "commit files", "commit backups",
    "put complete",
)  # fmt: skip
RESTORE = ("after transaction", "commit translations", "delete_group")


@dataclass(frozen=True)
class Source:
    """A topic, what it holds and how it is set up, and a destination that has it."""

    topic: str
    contents: dict[int, list[Record]]
    settings: dict[str, str]
    lab: Lab


@pytest.fixture(scope="module")
def source(
    spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Source]:
    name = f"killed-{uuid4().hex[:8]}"
    truth.create_topic(broker.bootstrap, name, 2, retention_ms="-1")
    lab = Lab(spark, broker.bootstrap, tmp_path_factory.mktemp("stored"), empty_catalog)
    truth.produce(broker.bootstrap, name, rows_of(2, 30))
    lab.backup(name)
    truth.produce(broker.bootstrap, name, [r for r in rows_of(2, 25, start=30) if r.partition == 1])
    lab.backup(name)
    contents = truth.contents(broker.bootstrap, name)
    yield Source(name, contents, truth.settings(broker.bootstrap, name), lab)
    truth.delete_topic(broker.bootstrap, name)


@pytest.mark.parametrize("at", [*BACKUP, *EVERY])
def test_a_backup(at: int | str, source: Source, empty_catalog: Path, tmp_path: Path) -> None:
    name, before = source.topic, source.contents
    lab = Lab(source.lab.spark, source.lab.bootstrap, tmp_path / "lab", empty_catalog)
    with watched(tmp_path / "steps", kill_at=at) as steps:
        with suppress(Killed, EnvironmentProblem):
            lab.backup(name, parallelism=2)
        if not steps.dead:
            assert_ended(at, steps.taken())
            assert stored(lab) == before
            return
    *taken, last = steps.taken()
    assert at != LAST, "there are more steps than the long tests go through"
    exists = "commit backups" in taken
    seen = {relation: len(rows) for relation, rows in shown(lab).items()}
    assert seen == {
        "backups": exists, "files": 2 * exists, "positions": 2 * exists, "scopes": exists, "gaps": 0,
    }, last  # fmt: skip
    if "put lease source" in taken and taken.count("put lease source") < 3:
        with pytest.raises(Busy, match="source-lab is in use"):
            lab.backup(name)
    expire_leases(lab.folder)
    # One that exists while its record does is what the next run of the same command was asked for.
    assert lab.backup(name)["entries"] == (0 if "delete begun.json" in taken else 85), last
    assert stored(lab) == before


def assert_ended(at: int | str, taken: list[str]) -> None:
    """The run did not die since it has fewer steps than the long tests go through."""
    assert isinstance(at, int), f"never: {at}"
    assert at > len(taken)


@pytest.mark.parametrize("at", [*RESTORE, *EVERY])
def test_a_restore(at: int | str, source: Source, tmp_path: Path) -> None:
    name, before, lab = source.topic, source.contents, source.lab
    # A transaction holds a whole file: so many records may be there of partition 0, and of partition 1.
    whole = ({0, 30}, {0, 30, 55})
    groups = own_groups(lab)
    copy = f"copy-of-{name}-{str(at).replace(' ', '-').replace('#', '')}"
    with watched(tmp_path / "steps", kill_at=at) as steps:
        with suppress(Killed, EnvironmentProblem):
            lab.restore(name, maps={name: copy})
        if not steps.dead:
            assert_ended(at, steps.taken())
            assert truth.contents(lab.bootstrap, copy) == before
            assert translated.assert_exact(lab, name, copy) == 85
            return
    *taken, last = steps.taken()
    assert at != LAST, "there are more steps than the long tests go through"
    found = truth.contents(lab.bootstrap, copy)
    for partition, sizes in enumerate(whole):
        rows = found.get(partition, [])
        assert len(rows) in sizes, last
        assert rows == before[partition][: len(rows)], last
    expire_leases(lab.folder)
    begun, complete = (taken.count("commit restores") >= n for n in (1, 2))
    if complete:
        with pytest.raises(Refused, match="holds records already"):
            lab.restore(name, maps={name: copy})
    else:
        assert lab.restore(name, maps={name: copy})["resumed"] == begun, last
    assert truth.contents(lab.bootstrap, copy) == before, last
    assert translated.assert_exact(lab, name, copy) == 85, last
    assert truth.settings(lab.bootstrap, copy) == source.settings, last
    opened = CatalogReader.require(str(lab.folder))
    assert opened.rows("open_restores") == []
    # Killed when all was on record, a restore leaves its empty group to the broker's own retention.
    assert len(own_groups(lab) - groups) == (complete and "delete_group" not in taken)
    truth.delete_topic(lab.bootstrap, copy)


def own_groups(lab: Lab) -> set[str]:
    """Groups of this destination's restores that the broker has; those of other tests' come and go."""
    opened = CatalogReader.require(str(lab.folder))
    own = {
        group_of(row["restore_id"]) for row in opened.select("SELECT * FROM restores").read_all().to_pylist()
    }
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    found = admin.list_consumer_groups().result(30)
    assert found.errors == []
    return {group.group_id for group in found.valid if group.group_id.startswith(tuple(own))}
