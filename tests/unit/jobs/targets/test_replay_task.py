"""What a task of a restore into topics does when it is run again, without a broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup_jobs.kafka.admin.committed import Ends, Progress
from lakebackup_jobs.kafka.client import produce
from lakebackup_jobs.kafka.format.records import OFFSET
from lakebackup_jobs.lifecycle.tasks.splits import resumed_plan, write_splits
from lakebackup_jobs.targets import replay_task
from lakebackup_jobs.targets.replay_task import ReplayJob


class Brokers:
    """A partition, and the offset that the restore's group has committed for it."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.committed: Progress | None = None
        self.transactions_left = 99
        self.base_offset = 0

    def producer(self, *_given: Any, **_named: Any) -> Producer:
        return Producer(self)


class Producer:
    def __init__(self, brokers: Brokers) -> None:
        self.brokers, self.sent = brokers, list[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def resume(self, *_place: object) -> Progress | None:
        """As the real one: where it begins is committed before the first record is."""
        last = self.brokers.committed
        if last is None:
            self.brokers.committed = Progress(0, "")
        if last is None or last.note:
            self.brokers.base_offset = len(self.brokers.offsets)
        return last

    def base(self, _place: object) -> int:
        return self.brokers.base_offset

    def begin(self) -> None:
        if not self.brokers.transactions_left:
            raise EnvironmentProblem("the power went out")
        self.brokers.transactions_left -= 1
        self.sent = []

    def produce_block(self, _topic: str, _partition: int, columns: Any) -> int:
        self.sent += columns.rows[:, OFFSET].tolist()
        return len(columns.rows)

    def commit(self, progress: dict[Any, Progress]) -> None:
        self.brokers.offsets += self.sent
        (self.brokers.committed,) = progress.values()

    def holds(self, _place: object) -> bool:
        return self.brokers.base_offset > 0

    def ends(self, _place: object) -> Ends:
        return Ends(len(self.brokers.offsets), len(self.brokers.offsets))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(produce, "RestoreProducer", made.producer)
    monkeypatch.setattr(replay_task, "TRANSACTION_BYTES", 1)  # each file a transaction of its own
    return made


def backed_up(folder: Path) -> MadeBackups:
    made = MadeBackups(folder)
    made.backup([[Record(0, n) for n in range(3)], [Record(0, n) for n in range(3, 5)]])
    return made


def planned(made: MadeBackups) -> RestorePlan:
    request = RestoreRequest(str(made.folder), "kafka://b:1", topics=("orders",))
    return replace(plan_restore(request, made.reader()), at=made.number)


def job_of(folder: Path) -> ReplayJob:
    made = backed_up(folder)
    plan = planned(made)
    return ReplayJob(
        splits=write_splits(made.storage, plan, "restores/r/"),
        roots=made.reader().destinations(),
        targets={"orders": "copy"},
        from_ts=None,
        to_ts=None,
        group="g",
        client={},
        into={"orders": "id-1"},
        empty=frozenset({"orders"}),
        identities={},
        begins=plan.begins,
        ends=plan.ends,
        zero_as_one=False,
        by_key=False,
        left_alone={},
    )


def run(job: ReplayJob) -> int:
    return sum(work()["entries"] for work in job.works(0))


def test_progress_that_the_brokers_forgot_brings_nothing_twice(tmp_path: Path, brokers: Brokers) -> None:
    """Of a group without members they forget it after a week; all records came a second time."""
    job = job_of(tmp_path)
    brokers.transactions_left = 1
    with pytest.raises(EnvironmentProblem, match="power"):
        run(job)
    assert brokers.offsets == [0, 1, 2]
    brokers.committed, brokers.transactions_left = None, 99
    for _ in range(2):  # the first of them leaves an offset of the group
        with pytest.raises(Refused, match=r"copy\[0\].*would be there twice") as refused:
            run(job)
    assert "Delete the topic" in refused.value.hint
    assert brokers.offsets == [0, 1, 2]
    # As it says: the topic was deleted, and is another one now.
    brokers.offsets.clear()
    brokers.committed = None
    assert run(replace(job, into={"orders": "id-2"})) == 5
    assert brokers.offsets == [0, 1, 2, 3, 4]


def test_a_run_that_is_resumed_goes_on_behind_what_was_committed(tmp_path: Path, brokers: Brokers) -> None:
    job = job_of(tmp_path)
    brokers.transactions_left = 1
    with pytest.raises(EnvironmentProblem, match="power"):
        run(job)
    brokers.transactions_left = 99
    assert run(job) == 5
    assert brokers.offsets == [0, 1, 2, 3, 4]


def test_a_run_that_died_before_its_first_commit_begins_anew(tmp_path: Path, brokers: Brokers) -> None:
    job = job_of(tmp_path)
    brokers.transactions_left = 0
    with pytest.raises(EnvironmentProblem, match="power"):
        run(job)
    brokers.transactions_left = 99
    assert run(job) == 5


def test_what_another_restore_brought_meanwhile_is_not_added_to(tmp_path: Path, brokers: Brokers) -> None:
    """Of a run that is resumed nobody looked any more whether the topic was still empty."""
    job = job_of(tmp_path)
    brokers.offsets = [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(Refused, match=r"copy\[0\] holds records that this restore did not bring"):
            run(job)
    assert len(brokers.offsets) == 5
    assert run(replace(job, empty=frozenset())) == 5  # --append


def test_a_first_transaction_that_is_repaired_is_not_one_that_was_forgotten(
    tmp_path: Path, brokers: Brokers
) -> None:
    job = replace(job_of(tmp_path), empty=frozenset())
    brokers.offsets = [7, 8]
    brokers.transactions_left = 1
    with pytest.raises(EnvironmentProblem, match="power"):
        run(job)
    brokers.committed, brokers.transactions_left = Progress(0, ""), 99  # the brokers lost its end
    brokers.base_offset = 2
    assert run(job) == 5


def test_a_newer_backup_changes_nothing_about_a_restore_that_is_resumed(tmp_path: Path) -> None:
    """Where the newer one ended the translations ended too, and --continue left out what lay between."""
    made = backed_up(tmp_path)
    first = replace(planned(made), until={("orders", "1"): 7})
    assert resumed_plan(made.storage, "restores/r/", first) is None
    splits = write_splits(made.storage, first, "restores/r/")
    made.backup([[Record(0, n) for n in range(5, 9)]])
    now = planned(made)
    assert now.ends == {("orders", "0"): 9}
    found = resumed_plan(made.storage, "restores/r/", now)
    assert found is not None
    assert (found.ends, found.until, found.at) == ({("orders", "0"): 5}, first.until, 1)
    assert (found.topics, found.begins, found.entries) == (first.topics, first.begins, 5)
    assert write_splits(made.storage, found, "restores/r/") == splits
    # Of a run that kept nothing beside its splits, nobody knows where they end.
    made.storage.delete("restores/r/plan/resume.json")
    found = resumed_plan(made.storage, "restores/r/", now)
    assert found is not None
    assert (found.begins, found.ends) == ({}, {})
