"""A task of a restore into topics that runs again after it failed, without a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup_jobs.kafka.admin.committed import Ends, Progress
from lakebackup_jobs.kafka.format.records import OFFSET, Columns
from lakebackup_jobs.lifecycle.tasks.plan_shares import stored_plan
from lakebackup_jobs.targets import replay_task
from lakebackup_jobs.targets.replay_task import ReplayJob
from lakebackup_jobs.topics.restore import store_partitions


class Brokers:
    """A partition, and the offset that the restore's group has committed for it."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.committed: Progress | None = None
        self.transactions_left = 99
        self.base_offset = 0
        self.is_slow = False
        self.transactional_ids: list[str] = []

    def producer(self, _client: object, transactional_id: str, *_args: Any, **_kwargs: Any) -> Producer:
        self.transactional_ids.append(transactional_id)
        return Producer(self)


class Producer:
    def __init__(self, brokers: Brokers) -> None:
        self.brokers, self.pending_offsets = brokers, list[int]()
        self.is_due = brokers.is_slow

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def resume(self, targets: Collection[Any]) -> dict[Any, Progress | None]:
        """Like the real one, it commits where it begins before the first record."""
        last = self.brokers.committed
        if last is None:
            self.brokers.committed = Progress(0, "")
        if last is None or last.note:
            self.brokers.base_offset = len(self.brokers.offsets)
        return dict.fromkeys(targets, last)

    def base(self, _partition: object) -> int:
        return self.brokers.base_offset

    def begin(self) -> None:
        if not self.brokers.transactions_left:
            raise EnvironmentProblem("the power went out")
        self.brokers.transactions_left -= 1
        self.pending_offsets = []

    def pieces(self, columns: Columns) -> Iterator[Columns]:
        return (replace(columns, rows=row[None]) for row in columns.rows)

    def produce_block(self, _topic: str, _partition: int, columns: Any) -> int:
        self.pending_offsets += columns.rows[:, OFFSET].tolist()
        return len(columns.rows)

    def commit(self, progress: dict[Any, Progress]) -> dict[Any, Ends]:
        self.brokers.offsets += self.pending_offsets
        (self.brokers.committed,) = progress.values()
        return self.ends(progress)

    def filled(self, targets: Collection[Any]) -> set[Any]:
        return set(targets) if self.brokers.base_offset else set()

    def ends(self, targets: Collection[Any]) -> dict[Any, Ends]:
        return dict.fromkeys(targets, Ends(len(self.brokers.offsets), len(self.brokers.offsets)))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(replay_task, "RestoreProducer", brokers.producer)
    monkeypatch.setattr(replay_task, "TRANSACTION_BYTES", 1)  # each file a transaction of its own
    return brokers


def make_backups(folder: Path) -> MadeBackups:
    backups = MadeBackups(folder)
    backups.backup([[Record(0, n) for n in range(3)], [Record(0, n) for n in range(3, 5)]])
    return backups


def plan_of(backups: MadeBackups) -> RestorePlan:
    request = RestoreRequest(str(backups.folder), "kafka://b:1", topics=("orders",))
    return replace(plan_restore(request, backups.reader()), at=backups.number)


def job_of(folder: Path) -> ReplayJob:
    backups = make_backups(folder)
    plan = plan_of(backups)
    return ReplayJob(
        shares=store_partitions(backups.storage, "restores/r/", plan),
        roots=backups.reader().destinations(),
        targets={"orders": "copy"},
        from_ts=None,
        to_ts=None,
        group="g",
        client={},
        target_ids={"orders": "id-1"},
        empty=frozenset({"orders"}),
        identities={},
        begins=plan.begins,
        ends=plan.ends,
        zero_as_one=False,
        by_key=False,
        excluded_offsets={},
        one_producer=True,
    )


def run(job: ReplayJob) -> int:
    return sum(row["entries"] for work in job.works(0) for row in work())


def test_progress_that_the_brokers_forgot_brings_nothing_twice(tmp_path: Path, brokers: Brokers) -> None:
    """Brokers forget the progress of a group without members after a week. All records then came twice."""
    job = job_of(tmp_path)
    brokers.transactions_left = 1
    with pytest.raises(EnvironmentProblem, match="power"):
        run(job)
    assert brokers.offsets == [0, 1, 2]
    brokers.committed, brokers.transactions_left = None, 99
    for _ in range(2):  # the first run leaves an offset of the group
        with pytest.raises(Refused, match=r"copy\[0\].*would be there twice") as refused:
            run(job)
    assert "Delete the topic" in refused.value.hint
    assert brokers.offsets == [0, 1, 2]
    # As the hint says, the topic was deleted. A new one has its name.
    brokers.offsets.clear()
    brokers.committed = None
    assert run(replace(job, target_ids={"orders": "id-2"})) == 5
    assert brokers.offsets == [0, 1, 2, 3, 4]


def test_a_resumed_run_adds_nothing_to_the_records_of_another_restore(
    tmp_path: Path, brokers: Brokers
) -> None:
    """A run that was resumed did not look again whether the topic was still empty."""
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
    brokers.committed, brokers.transactions_left = Progress(0, ""), 99  # the transaction's end was lost
    brokers.base_offset = 2
    assert run(job) == 5


def test_a_newer_backup_changes_nothing_about_a_restore_that_is_resumed(tmp_path: Path) -> None:
    """The translations ended where the newer backup ended, and --continue left out the records between."""
    backups = make_backups(tmp_path)
    first_plan = replace(plan_of(backups), until={("orders", "1"): 7})
    assert stored_plan(backups.storage, "restores/r/") is None
    shares = store_partitions(backups.storage, "restores/r/", first_plan)
    backups.backup([[Record(0, n) for n in range(5, 9)]])
    newer_plan = plan_of(backups)
    assert newer_plan.ends == {("orders", "0"): 9}
    stored_shares = stored_plan(backups.storage, "restores/r/")
    assert stored_shares is not None
    assert stored_shares[0] == shares
    resumed = newer_plan.resumed(stored_shares[0].file, stored_shares[1])
    assert (resumed.ends, resumed.until, resumed.at) == ({("orders", "0"): 5}, first_plan.until, 1)
    assert (resumed.topics, resumed.begins, resumed.entries) == (first_plan.topics, first_plan.begins, 5)
    assert resumed.one_producer
    assert resumed.file.table().equals(first_plan.file.table())
    # A run that recorded nothing but its rows leaves their ends unknown.
    resumed = newer_plan.resumed(stored_shares[0].file, {})
    assert (resumed.begins, resumed.ends) == ({}, {})
    # A restore of an older version keeps a producer for each partition when it is resumed.
    old_state = {name: value for name, value in stored_shares[1].items() if name != "one_producer"}
    assert not newer_plan.resumed(stored_shares[0].file, old_state).one_producer


def test_tasks_or_partitions_have_a_producer_each(tmp_path: Path, brokers: Brokers) -> None:
    job = job_of(tmp_path)
    run(job)
    run(replace(job, one_producer=False, target_ids={"orders": "id-2"}))
    assert brokers.transactional_ids == ["g-task-0", "g-copy-0"]


def test_slow_brokers_get_a_part_of_a_file_in_a_transaction(tmp_path: Path, brokers: Brokers) -> None:
    """A transaction that takes too long is aborted, and a file may be too large for the longest one."""
    job = job_of(tmp_path)
    brokers.is_slow, brokers.transactions_left = True, 2
    with pytest.raises(EnvironmentProblem, match="power"):
        run(job)
    assert brokers.offsets == [0, 1]
    assert brokers.committed is not None
    assert brokers.committed.position == 2
    brokers.is_slow, brokers.transactions_left = False, 99
    assert run(job) == 5
    assert brokers.offsets == [0, 1, 2, 3, 4]
