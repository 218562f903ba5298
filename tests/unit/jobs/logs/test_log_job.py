"""The job of a log task, the settings with which a task may continue, and its status; no flush runs here."""

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
from lakebackup_jobs.logs.control.verbs import LogTasks, _check_continues, _launched
from lakebackup_jobs.logs.task import LastError, State, Task, TaskSettings, keys_of, settings_text

SETTINGS = TaskSettings("br", "h", ("t",))


class Stop(threading.Event):
    """An event whose `wait` returns at once and records its timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0)
        return self.is_set()


def job_of(root: str, stop: threading.Event) -> LogJob:
    request = LogRequest(root, "prod", SETTINGS, {}, tries=3)
    return LogJob(request, quiet(), stop, LastError())


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A catalog with a running task."""
    MadeBackups(tmp_path).flush()
    task.record(str(tmp_path), None, "prod", "running", SETTINGS)
    approve(str(tmp_path), "prod", SETTINGS)
    return str(tmp_path)


@pytest.fixture
def stop() -> Stop:
    return Stop()


@pytest.fixture
def job(root: str, stop: Stop) -> Iterator[LogJob]:
    job = job_of(root, stop)
    yield job
    job.lease.release()


def recorded_task(root: str) -> Task:
    return task.require(CatalogReader.require(root), "prod")


def fail_flushes(
    job: LogJob, monkeypatch: pytest.MonkeyPatch, *errors: LakebackupError
) -> list[LakebackupError]:
    """Flushes fail with these errors in turn; then the job is asked to end. Returns the errors that are
    left."""
    remaining = list(errors)

    def capture(*_: object) -> None:
        if not remaining:
            job.stop.set()
            return
        raise remaining.pop(0)

    monkeypatch.setattr(job, "capture", capture)
    monkeypatch.setattr(job, "sleep", job.stop.set)
    return remaining


def test_a_passing_error_is_tried_again_and_then_pauses_the_task(
    root: str, job: LogJob, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    remaining = fail_flushes(job, monkeypatch, *(EnvironmentProblem(f"no answer {n}") for n in range(4)))
    pauses: list[LakebackupError] = []
    job.last_error.paused = pauses.append
    job.run(None)  # type: ignore[arg-type]
    recorded = recorded_task(root)
    assert (recorded.state, recorded.detail, len(remaining)) == ("paused", "no answer 2", 1)
    assert job.last_error.text == "no answer 2"
    assert [error.message for error in pauses] == ["no answer 2"]
    assert stop.waits == [1.0, 2.0]  # each time after twice as long


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            Damaged("a.b[0] offset 7 is not JSON.", hint="Mend it."),
            "Mend it. Or go on without this message: lakebackup log resume prod --skip a.b:0:7",
        ),
        (Refused("The topic is gone.", hint="Make it."), "Make it."),
    ],
)  # fmt: skip
def test_a_task_that_pauses_itself_names_the_way_past_a_message(
    root: str, job: LogJob, monkeypatch: pytest.MonkeyPatch, error: LakebackupError, hint: str
) -> None:
    fail_flushes(job, monkeypatch, error)
    job.run(None)  # type: ignore[arg-type]
    assert (recorded_task(root).detail or "").split("\n")[1].startswith(hint)


def test_a_flush_that_succeeds_between_restarts_the_count(
    root: str, job: LogJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_flushes(job, monkeypatch, *(EnvironmentProblem("no answer") for _ in range(2)))
    job.run(None)  # type: ignore[arg-type]
    job.stop.clear()
    job.flushed({"backup_id": "b", "files": 1, "bytes": 2, "entries": 3, "seconds": 1, "end_ts": 9})
    fail_flushes(job, monkeypatch, *(EnvironmentProblem("no answer") for _ in range(2)))
    result = job.run(None)  # type: ignore[arg-type]
    assert recorded_task(root).state == "running"
    assert result == {"task": "prod", "flushes": 1, "files": 1, "bytes": 2, "entries": 3, "last_backup": "b"}


def test_a_permanent_error_pauses_the_task_at_once(
    root: str, job: LogJob, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_flushes(job, monkeypatch, Damaged("no event"))
    job.run(None)  # type: ignore[arg-type]
    assert (recorded_task(root).state, recorded_task(root).detail, stop.waits) == ("paused", "no event", [])


def test_a_failure_is_known_at_once_and_recorded_as_soon_as_possible(
    root: str, job: LogJob, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, errors, texts = task.record, [EnvironmentProblem("No space left")] * 2, list[Any]()

    def record_or_fail(*arguments: Any, **keywords: Any) -> Any:
        texts.append(job.last_error.text)
        if errors:
            raise errors.pop()
        return record(*arguments, **keywords)

    monkeypatch.setattr(run.task, "record", record_or_fail)
    job.pause(EnvironmentProblem("No space left for the flush"))
    assert texts == ["No space left for the flush"] * 3
    assert (recorded_task(root).state, recorded_task(root).detail) == (
        "paused",
        "No space left for the flush",
    )
    assert len(stop.waits) == 2


def test_a_task_that_was_stopped_meanwhile_stays_stopped(root: str, job: LogJob) -> None:
    task.record(root, None, "prod", "stopped", SETTINGS)
    job.pause(Damaged("no event"))
    assert (recorded_task(root).state, recorded_task(root).detail) == ("stopped", None)


@pytest.mark.parametrize("state", ["stopped", "running"])
def test_a_request_while_the_job_records_a_pause_wins(
    root: str, job: LogJob, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    record = task.record

    def late(*arguments: Any, **keywords: Any) -> Any:
        record(root, None, "prod", state, SETTINGS)  # the job has looked, and not written yet
        return record(*arguments, **keywords)

    monkeypatch.setattr(run.task, "record", late)
    job.pause(Damaged("no event"))
    assert (recorded_task(root).state, recorded_task(root).detail) == (state, None)


def test_a_task_has_one_job(root: str, job: LogJob, stop: Stop) -> None:
    with pytest.raises(Busy):
        job_of(root, stop)
    job.lease.release()
    job_of(root, stop).lease.release()


def test_a_task_that_encrypts_needs_its_keys() -> None:
    with pytest.raises(UsageProblem, match="no key file is set"):
        keys_of("prod", None)


def test_the_last_record_counts_even_from_a_machine_whose_clock_is_behind(root: str) -> None:
    ahead = time.time_ns() // 1000 + 5_000_000
    row = LogTask(source="prod", at=ahead, actor="job", state="running", settings=settings_text(SETTINGS))
    CatalogWriter(None, root).record(row)
    task.record(root, None, "prod", "stopped", SETTINGS)
    assert recorded_task(root).state == "stopped"


def test_a_job_that_has_paused_does_not_undo_a_resume(root: str, job: LogJob) -> None:
    task_before = job.task()
    task.record(root, None, "prod", "running", SETTINGS)
    job.record("paused", expected=task_before)
    assert recorded_task(root).state == "running"
    job.record("paused", expected=recorded_task(root))
    assert recorded_task(root).state == "paused"


@pytest.mark.parametrize(
    ("state", "at_work", "code"), [("running", False, 4), ("running", True, 0), ("stopped", False, 0)]
)
def test_status_ends_with_a_code_when_stores_are_in_error(
    root: str, monkeypatch: pytest.MonkeyPatch, state: State, at_work: bool, code: int
) -> None:
    task.record(root, None, "prod", state, SETTINGS)
    rows = CatalogReader.rows

    def with_a_store(reader: CatalogReader, name: str, **parameters: Any) -> list[dict[str, Any]]:
        return (
            [{"store": 1, "next_backup_ts": 5}] if name == "log_stores" else rows(reader, name, **parameters)
        )

    monkeypatch.setattr(CatalogReader, "rows", with_a_store)
    monkeypatch.setattr(task, "lease_of", lambda *_: 1 if at_work else None)
    monkeypatch.setattr("lakebackup_jobs.cli.log.status.waiting", lambda *_: None)
    for form in ([], ["--json"]):
        assert main(["log", "status", "--repo", root, *form]) == code


def test_a_look_at_the_catalog_that_fails_is_repeated(job: LogJob, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, failures_left = job.task(), [2]

    def look() -> Task:
        failures_left[0] -= 1
        if failures_left[0] >= 0:
            raise EnvironmentProblem("the network is away")
        return recorded

    monkeypatch.setattr(job.watch, "look", look)
    monkeypatch.setattr(run, "_POLL_S", 0.01)
    assert job.watched_task() == recorded
    failures_left[0] = 3
    with pytest.raises(EnvironmentProblem):
        job.watched_task()


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog without a task."""
    MadeBackups(tmp_path / "backups").flush()
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    return str(tmp_path / "backups")


def test_a_job_that_was_killed_is_not_taken_for_one_that_continues(empty: str, tmp_path: Path) -> None:
    """Its lease is held until it expires; then a job is started, which ends here because it has no task."""
    dead = Lease.acquire(open_storage(empty), "log-prod", "killed", ttl_s=1)
    dead._stop.set()
    repository = LogTasks(empty, None, {}, [])
    with pytest.raises(EnvironmentProblem, match="There is no log task 'prod'"):
        _launched(repository, "prod", repository.lease("prod"))
    assert len(list((tmp_path / "cache" / "logs").glob("log-prod-*.log"))) == 1


@pytest.mark.long
def test_output_of_a_job_is_not_shown_for_the_next(empty: str) -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="There is no log task 'prod'") as caught:
            _launched(LogTasks(empty, None, {}, []), "prod", None)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


NAMES = [
    {"table_id": 1, "db": "shop", "name": "orders"},
    {"table_id": 1, "db": "old", "name": "orders"},
    {"table_id": 2, "db": "log", "name": "hits"},
]


@pytest.mark.parametrize(
    ("recorded", "requested", "message"),
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
def test_a_task_continues_only_with_compatible_settings(
    recorded: dict[str, Any], requested: dict[str, Any], message: str | None
) -> None:
    """Later flushes do not capture what earlier ones left out."""
    if message is None:
        _check_continues(
            "prod", replace(SETTINGS, **recorded), replace(SETTINGS, **requested), {"end_ts": 70}, NAMES
        )
        return
    with pytest.raises(Refused, match=message):
        _check_continues(
            "prod", replace(SETTINGS, **recorded), replace(SETTINGS, **requested), {"end_ts": 70}, NAMES
        )


class Feed:
    """A cluster with one partition, and its log, which says where the records of an earlier leader ended."""

    def __init__(self) -> None:
        self.end, self.epoch, self.cut_at, self.queries = 100, 3, 100, 0

    def topic_names(self) -> list[str]:
        return ["t"]

    def describe(self, _: list[str]) -> list[TopicState]:
        return [TopicState("t", "e1", 1, 1, {})]

    def positions(self, *_: Any) -> tuple[int, list[RegionState]]:
        return 1, [RegionState("t", "e1", "0", 0, self.end, self.end, self.epoch)]

    def ends(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
        self.queries += len(backup_ends)
        return {backup_end: EpochEnd(3, self.cut_at) for backup_end in backup_ends}


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
    """It has nothing to read, or events that look like those after the ones that were read."""
    feed.end, feed.epoch, feed.cut_at = end, 4, 50
    with pytest.raises(Refused, match="partition 0, from offset 50 on were lost"):
        plan(feed, empty)
    planned = plan(feed, empty, allow_gaps=True)
    assert planned is not None
    assert [(p.start_position, p.end_position) for p in planned.positions] == [(50, end)]
    assert [(g.from_position, g.to_position) for g in planned.gaps] == [(50, None)]


def test_a_new_leader_is_asked_once_where_the_records_of_the_earlier_one_end(feed: Feed, empty: str) -> None:
    feed.epoch = 4
    planner = Planner(LogRequest(empty, "prod", SETTINGS, {}))
    assert [planner.plan(), planner.plan()] == [None, None]
    assert feed.queries == 1


@pytest.mark.parametrize("changes", [{}, {"filters": ("*.*",)}, {"filters": ("a.b",)}, {"endts": 900}])
def test_an_interrupted_flush_continues_unless_the_task_has_other_settings(
    feed: Feed, empty: str, changes: dict[str, Any]
) -> None:
    """Its tasks left out what the new settings take, or captured what the new settings leave out."""
    feed.end, feed.epoch, feed.cut_at = 140, 4, 50
    recorded = replace(SETTINGS, filters=("a.*",), allow_gaps=True)
    planner = FlushPlanner(LogRequest(empty, "prod", recorded, {}), immediate=False)
    draft = planner.DRAFT.validate_json(planner.DRAFT.dump_json(planner.plan()))
    request = LogRequest(empty, "prod", replace(recorded, **changes), {})
    assert (FlushPlanner(request, immediate=False).job(draft) is None) == bool(changes)
    if changes:
        capture = Capture.__new__(Capture)
        capture._request = request
        capture.publish(draft, [], Totals(), None, None)  # type: ignore[arg-type]  # without a session it can do nothing
