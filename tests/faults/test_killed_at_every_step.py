"""A backup and a restore die before each of their steps in turn; the next run completes them.

The quick tests kill them before steps that leave a distinct state; the long tests cover every step.
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
from tests.support.faults import Killed, catalog_rows, expire_leases, rows_of, stored_records, watched
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
# The state after each of these is distinct; the state after any other step is like the one before it.
BACKUP = (
    "put begun.json", "put data", "put part", "put manifest.json", "commit files", "commit backups",
    "put complete",
)  # fmt: skip
RESTORE = ("after transaction", "commit translations", "delete_group")


@dataclass(frozen=True)
class Source:
    """A topic, its contents and settings, and a destination with its backups."""

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


@pytest.mark.parametrize("step", [*BACKUP, *EVERY])
def test_a_backup_killed_before_a_step_is_completed(
    step: int | str, source: Source, empty_catalog: Path, tmp_path: Path
) -> None:
    name, expected = source.topic, source.contents
    lab = Lab(source.lab.spark, source.lab.bootstrap, tmp_path / "lab", empty_catalog)
    with watched(tmp_path / "steps", kill_at=step) as steps:
        with suppress(Killed, EnvironmentProblem):
            lab.backup(name, parallelism=2)
        if not steps.dead:
            assert_ended(step, steps.names())
            assert stored_records(lab) == expected
            return
    *steps_before, last = steps.names()
    assert step != LAST, "there are more steps than the long tests go through"
    exists = "commit backups" in steps_before
    counts = {relation: len(rows) for relation, rows in catalog_rows(lab).items()}
    assert counts == {
        "backups": exists, "files": 2 * exists, "positions": 2 * exists, "scopes": exists, "gaps": 0,
    }, last  # fmt: skip
    if "put lease source" in steps_before and steps_before.count("put lease source") < 3:
        with pytest.raises(Busy, match="source-lab is in use"):
            lab.backup(name)
    expire_leases(lab.folder)
    # While the draft of an existing backup is there, the next run of the same command returns that backup.
    assert lab.backup(name)["entries"] == (0 if "delete begun.json" in steps_before else 85), last
    assert stored_records(lab) == expected


def complete_restores(lab: Lab) -> set[str]:
    """The ids of the complete restores. Steps do not tell: merges of small files commit to `restores` too."""
    return {row["restore_id"] for row in CatalogReader.require(str(lab.folder)).rows("complete_restores")}


def assert_ended(step: int | str, names: list[str]) -> None:
    """Check that the run survived only because it has fewer steps than the long tests go through."""
    assert isinstance(step, int), f"never: {step}"
    assert step > len(names)


@pytest.mark.parametrize("step", [*RESTORE, *EVERY])
def test_a_restore_killed_before_a_step_is_completed(step: int | str, source: Source, tmp_path: Path) -> None:
    name, expected, lab = source.topic, source.contents, source.lab
    # A transaction is one whole file: these counts of records are possible in partition 0 and in partition 1.
    possible_counts = ({0, 30}, {0, 30, 55})
    groups, completed = own_groups(lab), complete_restores(lab)
    copy = f"copy-of-{name}-{str(step).replace(' ', '-').replace('#', '')}"
    with watched(tmp_path / "steps", kill_at=step) as steps:
        with suppress(Killed, EnvironmentProblem):
            lab.restore(name, maps={name: copy})
        if not steps.dead:
            assert_ended(step, steps.names())
            assert truth.contents(lab.bootstrap, copy) == expected
            assert translated.assert_exact(lab, name, copy) == 85
            return
    *steps_before, last = steps.names()
    assert step != LAST, "there are more steps than the long tests go through"
    copied = truth.contents(lab.bootstrap, copy)
    for partition, counts in enumerate(possible_counts):
        rows = copied.get(partition, [])
        assert len(rows) in counts, last
        assert rows == expected[partition][: len(rows)], last
    expire_leases(lab.folder)
    is_complete = complete_restores(lab) != completed
    if is_complete:
        with pytest.raises(Refused, match="holds records already"):
            lab.restore(name, maps={name: copy})
    else:
        started = bool(CatalogReader.require(str(lab.folder)).rows("open_restores"))
        assert lab.restore(name, maps={name: copy})["resumed"] == started, last
    assert truth.contents(lab.bootstrap, copy) == expected, last
    assert translated.assert_exact(lab, name, copy) == 85, last
    assert truth.settings(lab.bootstrap, copy) == source.settings, last
    reader = CatalogReader.require(str(lab.folder))
    assert reader.rows("open_restores") == []
    # If it is killed when all is recorded, a restore leaves its empty group, which the broker deletes in
    # time.
    assert len(own_groups(lab) - groups) == (is_complete and "delete_group" not in steps_before)
    truth.delete_topic(lab.bootstrap, copy)


def own_groups(lab: Lab) -> set[str]:
    """The groups of this destination's restores on the broker, without groups of other tests."""
    reader = CatalogReader.require(str(lab.folder))
    group_ids = {
        group_of(row["restore_id"]) for row in reader.select("SELECT * FROM restores").read_all().to_pylist()
    }
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    listing = admin.list_consumer_groups().result(30)
    assert listing.errors == []
    return {group.group_id for group in listing.valid if group.group_id.startswith(tuple(group_ids))}
