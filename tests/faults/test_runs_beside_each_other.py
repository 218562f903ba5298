"""Two runs on one source at the same time, and records that are deleted during a backup."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.faults import Killed, catalog_rows, rows_of, stored_records, watched
from tests.support.runs import Lab

from lakebackup.errors import Busy, EnvironmentProblem, LakebackupError
from lakebackup_jobs.cli import main
from lakebackup_jobs.topics import planning

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Make = Callable[..., str]


def run_in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start work on another thread; the list gets its result or its error."""
    outcomes: list[Any] = []

    def run() -> None:
        try:
            outcomes.append(work())
        except LakebackupError as error:
            outcomes.append(error)

    thread = threading.Thread(target=run, name="first")
    thread.start()
    return thread, outcomes


def test_the_second_of_two_backups_of_a_source_is_busy(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("busy", partitions=2)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))
    with watched(tmp_path / "steps", hold="put data") as steps:
        thread, outcomes = run_in_thread(lambda: lab.backup(name))
        truth.until(lambda: steps.is_waiting, "the first backup writes data")
        command = ["backup", "topics", name, "--bootstrap-server", lab.bootstrap, "--source", "lab"]
        assert main([*command, "--repo", str(lab.folder)], spark=lab.spark) == 8
        steps.release()
        thread.join(240)
    assert outcomes[0]["entries"] == 40
    assert len(catalog_rows(lab)["backups"]) == 1
    assert stored_records(lab) == truth.contents(lab.bootstrap, name)


def test_the_second_of_two_equal_restores_is_busy(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name, copy = topic("busy", partitions=2), topic("busy-copy", partitions=2)
    truth.produce(lab.bootstrap, name, rows_of(2, 20))
    lab.backup(name)
    with watched(tmp_path / "steps", hold="commit transaction") as steps:
        thread, outcomes = run_in_thread(lambda: lab.restore(name, maps={name: copy}))
        truth.until(lambda: steps.is_waiting, "the first restore writes records")
        with pytest.raises(Busy):
            lab.restore(name, maps={name: copy})
        steps.release()
        thread.join(240)
    assert outcomes[0]["entries"] == 40
    assert truth.contents(lab.bootstrap, copy) == truth.contents(lab.bootstrap, name)


def test_others_are_busy_while_one_prunes(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("pruned", partitions=2)
    for start in (0, 20):
        truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
        lab.backup(name, mode="full")
    with watched(tmp_path / "steps", hold="put prune.json") as steps:
        thread, outcomes = run_in_thread(lambda: lab.prune(days=0))
        truth.until(lambda: steps.is_waiting, "the first prune is about to exist")
        with pytest.raises(Busy):
            lab.prune(days=0)
        with pytest.raises(Busy):
            lab.backup(name)
        steps.release()
        thread.join(240)
    assert len(outcomes[0]["backups"]) == 1, outcomes
    assert stored_records(lab) == truth.contents(lab.bootstrap, name)


@pytest.mark.long
def test_two_prunes_and_a_backup_at_once_succeed_or_are_busy(lab: Lab, topic: Make) -> None:
    """No run waits: each does its work or reports that another run holds the lease."""
    name = topic("pruned", partitions=2)
    for start in (0, 20, 40, 60):
        truth.produce(lab.bootstrap, name, rows_of(2, 20, start))
        lab.backup(name, mode="full")
    truth.produce(lab.bootstrap, name, rows_of(2, 20, 80))
    jobs = [lambda: lab.prune(days=0), lambda: lab.prune(days=0), lambda: lab.backup(name)]
    runs = [run_in_thread(job) for job in jobs]
    for thread, _ in runs:
        thread.join(240)
    outcomes = [thread_outcomes[0] for _, thread_outcomes in runs]
    assert all(isinstance(outcome, Busy | dict) for outcome in outcomes), outcomes
    assert any(isinstance(outcome, dict) for outcome in outcomes)
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, Busy):
            job()
    states = [row["state"] for row in catalog_rows(lab)["backups"]]
    assert sorted(states) == ["complete"] * 2 + ["deleted"] * 3
    assert stored_records(lab) == truth.contents(lab.bootstrap, name)
    assert lab.prune(days=0)["prune_id"] is None


@pytest.mark.long
def test_the_lease_of_a_killed_backup_expires(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name = topic("expires")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    with watched(tmp_path / "steps", kill_at="put begun.json"), suppress(Killed, EnvironmentProblem):
        lab.backup(name, lease_ttl_s=3.0)

    def backup_succeeds() -> bool:
        try:
            return bool(lab.backup(name)["entries"] == 20)
        except Busy:
            busy.append(True)
            return False

    busy: list[bool] = []
    truth.until(backup_succeeds, "the lease is over", 20)
    assert busy
    assert len(catalog_rows(lab)["backups"]) == 1


@pytest.mark.long
def test_records_deleted_between_plan_and_copy_become_a_gap(
    lab: Lab, topic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic("purged")
    truth.produce(lab.bootstrap, name, rows_of(1, 20))
    lab.backup(name)
    truth.produce(lab.bootstrap, name, rows_of(1, 20, 20))
    original_plan = planning.plan_next

    def plan_then_delete(*args: Any, **options: Any) -> Any:
        draft = original_plan(*args, **options)
        truth.delete_records(lab.bootstrap, name, {0: 30})
        return draft

    monkeypatch.setattr(planning, "plan_next", plan_then_delete)
    with pytest.raises(EnvironmentProblem, match="no longer on the broker"):
        lab.backup(name)
    monkeypatch.undo()
    assert len(catalog_rows(lab)["backups"]) == 1
    result = lab.backup(name)
    assert (result["kind"], result["entries"], result["gaps"]) == ("differential", 10, 1)
    (gap,) = catalog_rows(lab)["gaps"]
    assert (gap["from_position"], gap["to_position"], gap["reason"]) == (20, 30, "purged")
