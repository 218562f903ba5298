"""Follow is ended by an error, SIGKILL or SIGTERM: no record is lost or stored twice."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import catalog_rows, expire_leases
from tests.support.following import following, kinds, until_stored
from tests.support.kafka_truth import Record
from tests.support.processes import Run
from tests.support.runs import Lab

from lakebackup.errors import EnvironmentProblem
from lakebackup.store import manifest as sidecar
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.topics import follow as follow_topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PARTITIONS = 3


def fill(lab: Lab, topic: str, batch: int, each: int = 200) -> None:
    values = [random.Random(batch + i).randbytes(10_000) for i in range(7)]
    rows = [
        Record(p, b"%d" % i, values[i % 7], (), 1_600_000_000_000 + batch * each + i)
        for i in range(each)
        for p in range(PARTITIONS)
    ]
    truth.produce(lab.bootstrap, topic, rows)


def follow_of(lab: Lab, topic: str) -> list[str]:
    return [
        "backup", "topics", topic, "--follow", "--every", "200ms", "--repo", str(lab.folder),
        "--bootstrap-server", lab.bootstrap, "--source", "lab", "--target-size", "1MiB", "--codec", "null",
        "--groups", "none", "--lease-ttl", "5", "--json",
    ]  # fmt: skip


def run_of(lab: Lab, topic: str) -> Run:
    lab.make_catalog()
    return Run(lab, *follow_of(lab, topic))


def planned(lab: Lab) -> list[str]:
    """Ids of the backups in the checkpoint, in order."""
    batches = sorted((lab.folder / "lab/follow/offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = [json.loads(path.read_text().splitlines()[-1]) for path in batches]
    return [offset["backup_id"] for offset in offsets if offset]


def assert_continues(lab: Lab, topic: str, each: int = 200) -> None:
    """After a kill, follow again: then the catalog has every record once."""
    expire_leases(lab.folder)
    fill(lab, topic, 1, each)
    with following(lab, topic) as run:
        until_stored(run, lab, topic)
    assert set(kinds(lab)[1:]) <= {"log"}
    # Data files of a task that had not written its part are orphans.
    assert {finding["outcome"] for finding in lab.verify()["findings"]} <= {"orphan"}


@contextmanager
def failing(owner: object, step: str) -> Iterator[None]:
    """A function raises inside the block, in this process."""

    def fail(*_: object, **__: object) -> None:
        raise EnvironmentProblem(f"{step} failed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, step, fail)
        yield


def interrupt_at(lab: Lab, topic: str, owner: object, step: str) -> None:
    """Follow until the first batch calls a function that raises."""
    with failing(owner, step), following(lab, topic) as run:
        outcome = run.join()
    assert isinstance(outcome, EnvironmentProblem), outcome
    assert outcome.message == f"{step} failed"


@pytest.mark.long
def test_an_interrupted_follow_continues(lab: Lab, topic: Callable[..., str]) -> None:
    """Errors leave what a kill leaves, except leases: here before the commit, then before the marker."""
    name = topic("cut-off", partitions=PARTITIONS)
    fill(lab, name, 0, each=20)
    interrupt_at(lab, name, CatalogWriter, "commit_backup")
    assert catalog_rows(lab)["backups"] == []
    (first,) = planned(lab)
    interrupt_at(lab, name, sidecar, "mark")
    assert [b["backup_id"] for b in catalog_rows(lab)["backups"]] == [first]
    assert not (lab.folder / f"lab/backups/{first}/complete").exists()
    assert_continues(lab, name, each=20)
    assert (lab.folder / f"lab/backups/{first}/complete").exists()
    assert [b["backup_id"] for b in catalog_rows(lab)["backups"] if b["number"] == 1] == [first]


@pytest.mark.long
def test_a_planned_batch_whose_records_are_gone_is_abandoned(lab: Lab, topic: Callable[..., str]) -> None:
    """Otherwise the checkpoint would try this batch again for ever."""
    name = topic("cut-off", partitions=PARTITIONS)
    fill(lab, name, 0, each=20)
    interrupt_at(lab, name, follow_topics._Following, "_receive")
    truth.delete_records(lab.bootstrap, name, dict.fromkeys(range(PARTITIONS), 10))
    with following(lab, name) as run:
        until_stored(run, lab, name)
    assert "The batch is abandoned" in lab.warnings.getvalue()
    assert len(kinds(lab)) == 1


@pytest.mark.long
def test_follow_stops_at_sigterm(
    lab: Lab, topic: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    """The current batch is completed."""
    name = topic("stopped", partitions=PARTITIONS)
    fill(lab, name, 0, each=20)
    caught_signals: list[int] = []

    def send_sigterm() -> None:
        truth.until(lambda: any(lab.folder.glob("lab/*/topics/*/*/*.data")), "the first data file")
        os.kill(os.getpid(), signal.SIGTERM)

    previous_handler = signal.signal(signal.SIGTERM, lambda number, _: caught_signals.append(number))
    try:
        thread = threading.Thread(target=send_sigterm)
        lab.make_catalog()
        thread.start()
        assert main(follow_of(lab, name), spark=lab.spark) == 0
        thread.join()
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
    assert caught_signals == []  # the command handled the signal
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (result["event"], result["backups"], result["entries"]) == ("result", 1, PARTITIONS * 20)
    assert kinds(lab) == ["full"]
    assert lab.backup(name)["entries"] == 0  # and no lease is left


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_follow_killed_at_any_time(lab: Lab, topic: Callable[..., str], seed: int) -> None:
    moments = random.Random(seed)
    name = topic("killed", partitions=PARTITIONS)
    fill(lab, name, 0)
    for batch in range(2, 5):
        run = run_of(lab, name)
        truth.until(lambda: any(lab.folder.glob("leases/follow-lab/*")), "the lease", 120)
        fill(lab, name, batch)
        time.sleep(moments.uniform(0, 4))
        run.kill()
        expire_leases(lab.folder)
    assert_continues(lab, name)
