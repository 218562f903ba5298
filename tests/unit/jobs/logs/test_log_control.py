from __future__ import annotations

import threading
import time
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.made_backups import MadeBackups

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.rows.logs import LogTask
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.progress import QuietReporter
from lakebackup_jobs.logs import task
from lakebackup_jobs.logs.capture import job as run
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.capture.job import _Job
from lakebackup_jobs.logs.control.verbs import Place, _check_goes_on, _launched
from lakebackup_jobs.logs.last_error import Trouble
from lakebackup_jobs.logs.task import Task, TaskSettings, settings_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakebackup_jobs.logs.task import State


def settings(**changes: Any) -> TaskSettings:
    return TaskSettings(**{"feed": "br", "bootstrap": "h", "topics": ("t",), **changes})


NAMES = [
    {"table_id": 1, "db": "shop", "name": "orders"},
    {"table_id": 1, "db": "old", "name": "orders"},
    {"table_id": 2, "db": "log", "name": "hits"},
]


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        ({}, {}, None),
        ({}, {"lastbackupts": 70, "codec": "lz4", "bootstrap": "other"}, None),
        ({"lastbackupts": 5}, {"lastbackupts": 5}, None),
        ({}, {"lastbackupts": 5}, "reaches up to 70; it cannot go on from 5"),
        ({}, {"feed": "debezium"}, "is a task of the feed br"),
        ({}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 200}, "is to end at 100"),
        ({"endts": 100}, {}, "is to end at 100"),
        ({}, {"endts": 70}, None),
        ({}, {"endts": 69}, "reaches up to 70 already; it cannot end at 69"),
        ({"endts": 50}, {"endts": 50}, "reaches up to 70 already"),
        ({}, {"topics": ("t", "u")}, "is a task of the topics t"),
        ({"filters": ("shop.*",)}, {"filters": ("old.o*",)}, None),  # all that it captures had such a name
        ({"filters": ("shop.*",)}, {}, None),
        ({}, {"filters": ("*.*", "!log.*")}, "captures log.hits, which"),
        (
            {"filters": ("shop.*", "log.*")},
            {"filters": ("x.*",)},
            "captures log.hits and 1 more tables, which",
        ),
    ],
)
def test_with_which_settings_a_task_goes_on(
    was: dict[str, Any], now: dict[str, Any], refused: str | None
) -> None:
    """What flushes have left out, no later one has."""
    if refused is None:
        _check_goes_on("prod", settings(**was), settings(**now), {"end_ts": 70}, NAMES)
        return
    with pytest.raises(Refused, match=refused):
        _check_goes_on("prod", settings(**was), settings(**now), {"end_ts": 70}, NAMES)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty catalog."""
    MadeBackups(tmp_path / "backups").flush()
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    return str(tmp_path / "backups")


def at(root: str) -> Task:
    return task.require(CatalogReader.require(root), "prod")


@pytest.fixture
def job(root: str) -> Iterator[_Job]:
    task.tell(root, None, "prod", "paused", settings())
    request = LogRequest(root, "prod", settings(), {}, tries=3)
    made = _Job(request, QuietReporter(StringIO(), StringIO()), threading.Event(), Trouble())
    yield made
    made.lease.release()


def test_what_is_told_last_counts_also_from_a_machine_whose_clock_is_behind(root: str) -> None:
    ahead = time.time_ns() // 1000 + 5_000_000
    row = LogTask(source="prod", at=ahead, actor="job", state="running", settings=settings_text(settings()))
    CatalogWriter.open(None, root).tell(row)
    task.tell(root, None, "prod", "stopped", settings())
    assert at(root).state == "stopped"


def test_a_job_that_has_paused_does_not_take_back_that_it_was_resumed_meanwhile(root: str, job: _Job) -> None:
    asked = job.task()
    task.tell(root, None, "prod", "running", settings())
    job.tell("paused", asked=asked)
    assert at(root).state == "running"
    job.tell("paused", asked=at(root))
    assert at(root).state == "paused"


@pytest.mark.parametrize(
    ("state", "at_work", "code"), [("running", False, 4), ("running", True, 0), ("stopped", False, 0)]
)
def test_status_ends_with_a_code_when_stores_are_in_error(
    root: str, monkeypatch: pytest.MonkeyPatch, state: State, at_work: bool, code: int
) -> None:
    task.tell(root, None, "prod", state, settings())
    rows = CatalogReader.rows

    def with_a_store(reader: CatalogReader, name: str, **asked: Any) -> list[dict[str, Any]]:
        return [{"store": 1, "next_backup_ts": 5}] if name == "log_stores" else rows(reader, name, **asked)

    monkeypatch.setattr(CatalogReader, "rows", with_a_store)
    monkeypatch.setattr(task, "lease_of", lambda *_: 1 if at_work else None)
    monkeypatch.setattr("lakebackup_jobs.logs.control.status.waiting", lambda *_: None)
    for form in ([], ["--json"]):
        assert main(["log", "status", "--from", root, *form]) == code


def test_a_look_at_the_catalog_that_fails_now_and_then_is_made_again(
    job: _Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, fails = job.task(), [2]

    def look() -> Task:
        fails[0] -= 1
        if fails[0] >= 0:
            raise EnvironmentProblem("the network is away")
        return found

    monkeypatch.setattr(job.watch, "look", look)
    monkeypatch.setattr(run, "_LOOK_S", 0.01)
    assert job.looked() == found
    fails[0] = 3
    with pytest.raises(EnvironmentProblem):
        job.looked()


def test_a_job_that_was_killed_is_not_taken_for_one_that_goes_on(root: str, tmp_path: Path) -> None:
    """Its lease is there until it ends; then a job is started, which here ends: it has no task."""
    dead = Lease.acquire(open_storage(root), "log-prod", "killed", ttl_s=1)
    dead._stop.set()
    place = Place(root, None, {}, [])
    with pytest.raises(EnvironmentProblem, match="There is no log task 'prod'"):
        _launched(place, "prod", place.lease("prod"))
    assert len(list((tmp_path / "cache" / "logs").glob("log-prod-*.log"))) == 1


@pytest.mark.long
@pytest.mark.usefixtures("root")
def test_what_a_job_printed_is_not_told_of_the_next(root: str) -> None:
    told = []
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="There is no log task 'prod'") as found:
            _launched(Place(root, None, {}, []), "prod", None)
        told.append(str(found.value))
    assert told[0] == told[1]
