"""What the job of a log task does when a flush fails, and who may run it; no flush runs here."""

from __future__ import annotations

import threading
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.made_backups import MadeBackups

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, LakebackupError, UsageProblem
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import QuietReporter
from lakebackup_jobs.logs import task
from lakebackup_jobs.logs.capture import job as run
from lakebackup_jobs.logs.capture.flush import LogRequest, keys_of
from lakebackup_jobs.logs.capture.job import _Job
from lakebackup_jobs.logs.last_error import Trouble
from lakebackup_jobs.logs.task import Task, TaskSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = TaskSettings("br", "h", ("t",))


class Stop(threading.Event):
    """Waits no time, and counts what it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0)
        return self.is_set()


def made(root: str, stop: threading.Event) -> _Job:
    request = LogRequest(root, "prod", SETTINGS, {}, tries=3)
    return _Job(request, QuietReporter(StringIO(), StringIO()), stop, Trouble())


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A catalog with a task that is to run."""
    MadeBackups(tmp_path).flush()
    task.tell(str(tmp_path), None, "prod", "running", SETTINGS)
    return str(tmp_path)


@pytest.fixture
def stop() -> Stop:
    return Stop()


@pytest.fixture
def job(root: str, stop: Stop) -> Iterator[_Job]:
    job = made(root, stop)
    yield job
    job.lease.release()


def at(root: str) -> Task:
    return task.require(CatalogReader.require(root), "prod")


def failing(job: _Job, monkeypatch: pytest.MonkeyPatch, *errors: LakebackupError) -> list[LakebackupError]:
    """Flushes fail by these, one after the other; then the job is asked to end. Those that are left."""
    left = list(errors)

    def capture(*_: object) -> None:
        if not left:
            job.stop.set()
            return
        raise left.pop(0)

    monkeypatch.setattr(job, "capture", capture)
    monkeypatch.setattr(job, "sleep", job.stop.set)
    return left


def test_what_may_pass_is_tried_again_and_then_pauses_the_task(
    root: str, job: _Job, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = failing(job, monkeypatch, *(EnvironmentProblem(f"no answer {n}") for n in range(4)))
    job.run(None)  # type: ignore[arg-type]
    found = at(root)
    assert (found.state, found.detail, len(left)) == ("paused", "no answer 2", 1)
    assert job.trouble.text == "no answer 2"
    assert stop.waits == [1.0, 2.0]  # each time after twice as long


def test_a_flush_that_succeeds_between_begins_the_count_anew(
    root: str, job: _Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(job, monkeypatch, *(EnvironmentProblem("no answer") for _ in range(2)))
    job.run(None)  # type: ignore[arg-type]
    job.stop.clear()
    job.flushed({"backup_id": "b", "files": 1, "bytes": 2, "entries": 3, "seconds": 1, "end_ts": 9})
    failing(job, monkeypatch, *(EnvironmentProblem("no answer") for _ in range(2)))
    done = job.run(None)  # type: ignore[arg-type]
    assert at(root).state == "running"
    assert done == {"task": "prod", "flushes": 1, "files": 1, "bytes": 2, "entries": 3, "last_backup": "b"}


def test_what_does_not_pass_pauses_the_task_at_once(
    root: str, job: _Job, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(job, monkeypatch, Damaged("no event"))
    job.run(None)  # type: ignore[arg-type]
    assert (at(root).state, at(root).detail, stop.waits) == ("paused", "no event", [])


def test_trouble_is_known_at_once_and_the_catalog_is_told_as_soon_as_it_can_be(
    root: str, job: _Job, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, full, seen = task.tell, [EnvironmentProblem("No space left")] * 2, list[Any]()

    def told(*arguments: Any) -> Any:
        seen.append(job.trouble.text)
        if full:
            raise full.pop()
        return tell(*arguments)

    monkeypatch.setattr(run.task, "tell", told)
    job.pause(EnvironmentProblem("No space left for the flush"))
    assert seen == ["No space left for the flush"] * 3
    assert (at(root).state, at(root).detail) == ("paused", "No space left for the flush")
    assert len(stop.waits) == 2


def test_a_task_that_was_stopped_meanwhile_stays_stopped(root: str, job: _Job) -> None:
    task.tell(root, None, "prod", "stopped", SETTINGS)
    job.pause(Damaged("no event"))
    assert (at(root).state, at(root).detail) == ("stopped", None)


def test_one_job_a_task(root: str, job: _Job, stop: Stop) -> None:
    with pytest.raises(Busy):
        made(root, stop)
    job.lease.release()
    made(root, stop).lease.release()


def test_a_task_that_encrypts_needs_its_keys() -> None:
    with pytest.raises(UsageProblem, match="no file of keys is named"):
        keys_of("prod", None)
