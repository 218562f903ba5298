"""A backup dies before each of its steps in turn; the next run completes it.

The quick tests kill it before steps that leave a distinct state; the long tests cover every step. Restores
are in tests/contract/test_restore_life.py.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import Killed, expire_leases, rows_of, shown, stored, watched
from tests.support.runs import Lab

from lakebackup.errors import Busy, EnvironmentProblem

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
            assert_ended(step, steps.taken())
            assert stored(lab) == expected
            return
    *steps_before, last = steps.taken()
    assert step != LAST, "there are more steps than the long tests go through"
    exists = "commit backups" in steps_before
    counts = {relation: len(rows) for relation, rows in shown(lab).items()}
    assert counts == {
        "backups": exists, "files": 2 * exists, "positions": 2 * exists, "scopes": exists, "gaps": 0,
    }, last  # fmt: skip
    if "put lease source" in steps_before and steps_before.count("put lease source") < 3:
        with pytest.raises(Busy, match="source-lab is in use"):
            lab.backup(name)
    expire_leases(lab.folder)
    # While the draft of an existing backup is there, the next run of the same command returns that backup.
    assert lab.backup(name)["entries"] == (0 if "delete begun.json" in steps_before else 85), last
    assert stored(lab) == expected


def assert_ended(step: int | str, names: list[str]) -> None:
    """Check that the run survived only because it has fewer steps than the long tests go through."""
    assert isinstance(step, int), f"never: {step}"
    assert step > len(names)
