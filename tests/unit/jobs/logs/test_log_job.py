"""What the job of a log task does, which tasks go on, and what is seen of them; no flush runs here."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import made_backup, made_position
from tests.support.command_line import quiet
from tests.support.log_tasks import approve
from tests.support.made_backups import MadeBackups

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, LakebackupError, Refused, UsageProblem
from lakebackup.plan.logs.flush import Flush
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.topics.forks import BackupEnd, EpochEnd
from lakebackup.rows.logs import LogTask
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.logs import task
from lakebackup_jobs.logs.capture import flush
from lakebackup_jobs.logs.capture import job as run
from lakebackup_jobs.logs.capture.flush import LogRequest, Planner
from lakebackup_jobs.logs.capture.job import LogJob
from lakebackup_jobs.logs.capture.stream import Capture, FlushPlanner
from lakebackup_jobs.logs.control.verbs import Place, _check_continues, _launched
from lakebackup_jobs.logs.task import LastError, State, Task, TaskSettings, keys_of, settings_text

SETTINGS = TaskSettings("br", "h", ("t",))


class Stop(threading.Event):
    """Waits no time, and counts what it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0)
        return self.is_set()


def made(root: str, stop: threading.Event) -> LogJob:
    request = LogRequest(root, "prod", SETTINGS, {}, tries=3)
    return LogJob(request, quiet(), stop, LastError())


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A catalog with a task that is to run."""
    MadeBackups(tmp_path).flush()
    task.record(str(tmp_path), None, "prod", "running", SETTINGS)
    approve(str(tmp_path), "prod", SETTINGS)
    return str(tmp_path)


@pytest.fixture
def stop() -> Stop:
    return Stop()


@pytest.fixture
def job(root: str, stop: Stop) -> Iterator[LogJob]:
    job = made(root, stop)
    yield job
    job.lease.release()


def at(root: str) -> Task:
    return task.require(CatalogReader.require(root), "prod")


def failing(job: LogJob, monkeypatch: pytest.MonkeyPatch, *errors: LakebackupError) -> list[LakebackupError]:
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
    root: str, job: LogJob, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = failing(job, monkeypatch, *(EnvironmentProblem(f"no answer {n}") for n in range(4)))
    heard: list[LakebackupError] = []
    job.last_error.paused = heard.append
    job.run(None)  # type: ignore[arg-type]
    found = at(root)
    assert (found.state, found.detail, len(left)) == ("paused", "no answer 2", 1)
    assert job.last_error.text == "no answer 2"
    assert [error.message for error in heard] == ["no answer 2"]
    assert stop.waits == [1.0, 2.0]  # each time after twice as long


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (
            Damaged("a.b[0] offset 7 is not JSON.", hint="Mend it."),
            "Mend it. Or go on without this message: lakebackup log resume prod --skip a.b:0:7",
        ),
        (Refused("The topic is gone.", hint="Make it."), "Make it."),
    ],
)  # fmt: skip
def test_a_task_that_pauses_itself_names_the_way_past_a_message(
    root: str, job: LogJob, monkeypatch: pytest.MonkeyPatch, error: LakebackupError, way: str
) -> None:
    failing(job, monkeypatch, error)
    job.run(None)  # type: ignore[arg-type]
    assert (at(root).detail or "").split("\n")[1].startswith(way)


def test_a_flush_that_succeeds_between_restarts_the_count(
    root: str, job: LogJob, monkeypatch: pytest.MonkeyPatch
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
    root: str, job: LogJob, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(job, monkeypatch, Damaged("no event"))
    job.run(None)  # type: ignore[arg-type]
    assert (at(root).state, at(root).detail, stop.waits) == ("paused", "no event", [])


def test_trouble_is_known_at_once_and_the_catalog_knows_as_soon_as_it_can_be(
    root: str, job: LogJob, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, full, seen = task.record, [EnvironmentProblem("No space left")] * 2, list[Any]()

    def recorded(*arguments: Any, **named: Any) -> Any:
        seen.append(job.last_error.text)
        if full:
            raise full.pop()
        return record(*arguments, **named)

    monkeypatch.setattr(run.task, "record", recorded)
    job.pause(EnvironmentProblem("No space left for the flush"))
    assert seen == ["No space left for the flush"] * 3
    assert (at(root).state, at(root).detail) == ("paused", "No space left for the flush")
    assert len(stop.waits) == 2


def test_a_task_that_was_stopped_meanwhile_stays_stopped(root: str, job: LogJob) -> None:
    task.record(root, None, "prod", "stopped", SETTINGS)
    job.pause(Damaged("no event"))
    assert (at(root).state, at(root).detail) == ("stopped", None)


@pytest.mark.parametrize("asked", ["stopped", "running"])
def test_what_a_person_asks_while_the_job_records_a_pause_counts(
    root: str, job: LogJob, monkeypatch: pytest.MonkeyPatch, asked: State
) -> None:
    record = task.record

    def late(*arguments: Any, **named: Any) -> Any:
        record(root, None, "prod", asked, SETTINGS)  # the job has looked, and not written yet
        return record(*arguments, **named)

    monkeypatch.setattr(run.task, "record", late)
    job.pause(Damaged("no event"))
    assert (at(root).state, at(root).detail) == (asked, None)


def test_one_job_a_task(root: str, job: LogJob, stop: Stop) -> None:
    with pytest.raises(Busy):
        made(root, stop)
    job.lease.release()
    made(root, stop).lease.release()


def test_a_task_that_encrypts_needs_its_keys() -> None:
    with pytest.raises(UsageProblem, match="no key file is set"):
        keys_of("prod", None)


def test_what_is_recorded_last_counts_also_from_a_machine_whose_clock_is_behind(root: str) -> None:
    ahead = time.time_ns() // 1000 + 5_000_000
    row = LogTask(source="prod", at=ahead, actor="job", state="running", settings=settings_text(SETTINGS))
    CatalogWriter(None, root).record(row)
    task.record(root, None, "prod", "stopped", SETTINGS)
    assert at(root).state == "stopped"


def test_a_job_that_has_paused_does_not_undo_a_resume(root: str, job: LogJob) -> None:
    asked = job.task()
    task.record(root, None, "prod", "running", SETTINGS)
    job.record("paused", asked=asked)
    assert at(root).state == "running"
    job.record("paused", asked=at(root))
    assert at(root).state == "paused"


@pytest.mark.parametrize(
    ("state", "at_work", "code"), [("running", False, 4), ("running", True, 0), ("stopped", False, 0)]
)
def test_status_ends_with_a_code_when_stores_are_in_error(
    root: str, monkeypatch: pytest.MonkeyPatch, state: State, at_work: bool, code: int
) -> None:
    task.record(root, None, "prod", state, SETTINGS)
    rows = CatalogReader.rows

    def with_a_store(reader: CatalogReader, name: str, **asked: Any) -> list[dict[str, Any]]:
        return [{"store": 1, "next_backup_ts": 5}] if name == "log_stores" else rows(reader, name, **asked)

    monkeypatch.setattr(CatalogReader, "rows", with_a_store)
    monkeypatch.setattr(task, "lease_of", lambda *_: 1 if at_work else None)
    monkeypatch.setattr("lakebackup_jobs.logs.control.status.waiting", lambda *_: None)
    for form in ([], ["--json"]):
        assert main(["log", "status", "--repo", root, *form]) == code


def test_a_look_at_the_catalog_that_fails_now_and_then_is_recreated(
    job: LogJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, fails = job.task(), [2]

    def look() -> Task:
        fails[0] -= 1
        if fails[0] >= 0:
            raise EnvironmentProblem("the network is away")
        return found

    monkeypatch.setattr(job.watch, "look", look)
    monkeypatch.setattr(run, "_POLL_S", 0.01)
    assert job.watched_task() == found
    fails[0] = 3
    with pytest.raises(EnvironmentProblem):
        job.watched_task()


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog without a task."""
    MadeBackups(tmp_path / "backups").flush()
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    return str(tmp_path / "backups")


def test_a_job_that_was_killed_is_not_taken_for_one_that_continues(empty: str, tmp_path: Path) -> None:
    """Its lease is there until it ends; then a job is started, which here ends: it has no task."""
    dead = Lease.acquire(open_storage(empty), "log-prod", "killed", ttl_s=1)
    dead._stop.set()
    place = Place(empty, None, {}, [])
    with pytest.raises(EnvironmentProblem, match="There is no log task 'prod'"):
        _launched(place, "prod", place.lease("prod"))
    assert len(list((tmp_path / "cache" / "logs").glob("log-prod-*.log"))) == 1


@pytest.mark.long
def test_what_a_job_printed_is_not_shown_for_the_next(empty: str) -> None:
    told = []
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="There is no log task 'prod'") as found:
            _launched(Place(empty, None, {}, []), "prod", None)
        told.append(str(found.value))
    assert told[0] == told[1]


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
        ({}, {"lastbackupts": 5}, "reaches up to 70; it cannot continue from 5"),
        ({}, {"feed": "debezium"}, "is a task of the feed br"),
        ({}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 100}, None),
        ({"endts": 100}, {"endts": 200}, "is to end at 100"),
        ({"endts": 100}, {}, "is to end at 100"),
        ({}, {"endts": 70}, None),
        ({}, {"endts": 69}, "reaches up to 70 already; it cannot end at 69"),
        ({"endts": 50}, {"endts": 50}, "reaches up to 70 already"),
        ({}, {"topics": ("t", "u")}, "is a task of the topics t"),
        ({}, {"topics": ("t", "!u")}, None),
        ({"topics": ("t", "!u")}, {"topics": ("t",)}, "is a task of the topics t, !u"),
        ({"filters": ("shop.*",)}, {"filters": ("old.o*",)}, None),  # all that it captures had such a name
        ({"filters": ("shop.*",)}, {}, None),
        ({}, {"filters": ("*.*", "!log.*")}, "captures log.hits, which"),
        ({"filters": ("shop.*", "log.*")}, {"filters": ("x.*",)}, "captures log.hits and 1 more tables"),
    ],
)
def test_with_which_settings_a_task_continues(
    was: dict[str, Any], now: dict[str, Any], refused: str | None
) -> None:
    """What flushes have left out, no later one has."""
    if refused is None:
        _check_continues("prod", replace(SETTINGS, **was), replace(SETTINGS, **now), {"end_ts": 70}, NAMES)
        return
    with pytest.raises(Refused, match=refused):
        _check_continues("prod", replace(SETTINGS, **was), replace(SETTINGS, **now), {"end_ts": 70}, NAMES)


class Feed:
    """A cluster with one partition, whose log tells where the records of another leader ended."""

    def __init__(self) -> None:
        self.end, self.epoch, self.cut_at, self.asked = 100, 3, 100, 0

    def topic_names(self) -> list[str]:
        return ["t"]

    def describe(self, _: list[str]) -> list[TopicState]:
        return [TopicState("t", "e1", 1, 1, {})]

    def positions(self, *_: Any) -> tuple[int, list[RegionState]]:
        return 1, [RegionState("t", "e1", "0", 0, self.end, self.end, self.epoch)]

    def ends(self, asked: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
        self.asked += len(asked)
        return {one: EpochEnd(3, self.cut_at) for one in asked}


@pytest.fixture
def feed(empty: str, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Its first 100 events are flushed."""
    feed = Feed()
    monkeypatch.setattr(flush, "Cluster", lambda _: feed)
    monkeypatch.setattr(flush, "Logs", lambda *_: feed)
    row = made_backup(1, source="prod", source_kind="changes", kind="log")
    own = {"backup_id": row.backup_id, "source": "prod", "scope": "t", "epoch": "e1"}
    CatalogWriter(None, empty).append([row, made_position(0, 100, **own, leader_epoch=3)])
    return feed


def plan(feed: Feed, root: str, **settings: Any) -> Flush | None:
    return Planner(LogRequest(root, "prod", replace(SETTINGS, **settings), {})).plan()


@pytest.mark.parametrize("end", [50, 70, 100, 140])
def test_a_partition_that_was_cut_back_is_found_however_far_it_has_grown(
    feed: Feed, empty: str, end: int
) -> None:
    """It has nothing to read, or what looks like the events after those that were read."""
    feed.end, feed.epoch, feed.cut_at = end, 4, 50
    with pytest.raises(Refused, match="partition 0, from offset 50 on were lost"):
        plan(feed, empty)
    found = plan(feed, empty, allow_gaps=True)
    assert found is not None
    assert [(p.start_position, p.end_position) for p in found.positions] == [(50, end)]
    assert [(g.from_position, g.to_position) for g in found.gaps] == [(50, None)]


def test_a_new_leader_is_asked_once_where_the_records_of_the_one_before_end(feed: Feed, empty: str) -> None:
    feed.epoch = 4
    planner = Planner(LogRequest(empty, "prod", SETTINGS, {}))
    assert [planner.plan(), planner.plan()] == [None, None]
    assert feed.asked == 1


@pytest.mark.parametrize("now", [{}, {"filters": ("*.*",)}, {"filters": ("a.b",)}, {"endts": 900}])
def test_a_flush_that_was_interrupted_goes_on_unless_the_task_has_other_settings(
    feed: Feed, empty: str, now: dict[str, Any]
) -> None:
    """Tasks of it have left out what these take, or have captured what these leave out."""
    feed.end, feed.epoch, feed.cut_at = 140, 4, 50
    was = replace(SETTINGS, filters=("a.*",), allow_gaps=True)
    planner = FlushPlanner(LogRequest(empty, "prod", was, {}), now=False)
    draft = planner.DRAFT.validate_json(planner.DRAFT.dump_json(planner.plan()))
    request = LogRequest(empty, "prod", replace(was, **now), {})
    assert (FlushPlanner(request, now=False).job(draft) is None) == bool(now)
    if now:
        capture = Capture.__new__(Capture)
        capture._request = request
        capture.publish(draft, [], Totals(), None, None)  # type: ignore[arg-type]  # without a session it can do nothing
