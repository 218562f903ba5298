from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tests.support.rows import filled

from lakebackup.errors import Damaged
from lakebackup.plan.logs.flush import Flush, Newest
from lakebackup.rows.backups import Gap, Position
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.log import pause, stop
from lakebackup_jobs.cli.log.common import place_of
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.capture import publish
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.control.status import lines, problem
from lakebackup_jobs.logs.control.verbs import LogTasks
from lakebackup_jobs.logs.feeds.registry import feed_of
from lakebackup_jobs.logs.task import TaskSettings, settings_text, task_of


def task_status(state: str = "running", detail: str | None = None, at_work: bool = True) -> dict[str, Any]:
    return {"state": state, "detail": detail, "at_work": at_work}


def test_settings_come_back_as_they_were_written() -> None:
    settings = TaskSettings("debezium", "h:1", ("shop",), ("a.*", "!a.b"), 5, None, 1.5, 7, "lz4", True, True)
    row = {
        "source": "prod", "state": "paused", "at": 3, "actor": "me", "settings": settings_text(settings),
        "detail": "full",
    }  # fmt: skip
    assert (task_of(row).settings, task_of(row).over) == (settings, False)
    assert "password" not in settings_text(settings)


def test_the_repr_of_a_task_has_no_secrets() -> None:
    settings = TaskSettings("debezium", "h:1", ("shop",))
    client = {"sasl.password": "hidden"}
    objects = (
        LogRequest("/d", "prod", settings, client),
        LogTasks("/d", None, client),
        feed_of(settings, client),
    )
    assert "hidden" not in repr(objects)


@pytest.mark.parametrize("bad", ['"feed":"csv"', '"flush_every_s":0', '"codec":"gzip"', '"lastbackupts":-1'])
def test_settings_that_make_no_sense_are_refused(bad: str) -> None:
    text = f'{{"feed":"br","bootstrap":"h","topics":["t"],{bad}}}'
    with pytest.raises(Damaged, match=bad.split('"')[1]):
        task_of({"source": "p", "state": "running", "at": 0, "actor": "", "settings": text, "detail": None})


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (task_status(), None),
        (task_status("stopped", at_work=False), "task completed or not found"),
        (task_status("complete"), "task completed or not found"),
        (task_status("paused", "disk full\nFree some space."), "task paused itself: disk full"),
        (task_status("paused"), None),
        (task_status(at_work=False), "no job of the task is at work"),
    ],
)
def test_problems_of_a_task_are_named(status: dict[str, Any], message: str | None) -> None:
    assert problem(status) == message


def test_each_store_has_a_line() -> None:
    stores = [
        {"store": "1", "ok": False, "next_backup_ts": 5, "error": "task completed or not found"},
        {"store": "2", "ok": True, "next_backup_ts": 900, "error": None},
    ]
    assert lines({"stores": stores}) == [
        "Store 1: error, task completed or not found.",
        "Store 2: ok (next_backup_ts =900).",
    ]


def position(region: int, start: int, end: int) -> Position:
    region_columns = {"backup_id": "b2", "scope": "feed", "epoch": "e", "region": str(region)}
    return filled(Position, **region_columns, start_position=start, end_position=end, high_position=end)


def flush(newest: Newest | None, floor: int | None = None) -> Flush:
    rows = (position(0, 5, 10), position(1, 0, 7))
    return Flush("20260101T000000Z-00000001", 2, 0, 0, newest, floor, None, rows, (), (), ((0, 1),))


NEWEST = Newest("b1", 1, "b1", 0, 1, 0, 40)


def test_fewer_positions_may_be_captured_than_were_planned() -> None:
    ends = publish.ends_of(['[["feed", 0, 5, 8]]', '[["feed", 1, 0, 0]]'])
    rows = publish.captured(flush(NEWEST), ends)
    assert [(r.start_position, r.end_position) for r in rows] == [(5, 8), (0, 0)]
    assert not publish.idle(flush(NEWEST), ends)
    nothing = publish.ends_of(['[["feed", 0, 5, 5], ["feed", 1, 0, 0]]'])
    assert publish.idle(flush(NEWEST), nothing)
    assert not publish.idle(flush(None), nothing)


@pytest.mark.parametrize(("end_ts", "seen_ts", "to_ts"), [(70, 90, 90), (70, 60, 70), (40, 40, 41)])
def test_a_gap_reaches_as_far_as_the_flush_has_read(end_ts: int, seen_ts: int, to_ts: int) -> None:
    span = {"from_position": 5, "to_position": 8, "from_ts": 40, "to_ts": 40}
    gap = filled(Gap, backup_id="b2", scope="feed", epoch="e", bridged=True, **span)
    [bridged_gap] = publish.bridged([gap], end_ts, seen_ts)
    assert (bridged_gap.from_ts, bridged_gap.to_ts) == (40, to_ts)


@pytest.mark.parametrize(
    ("newest", "floor", "checkpoint", "endts", "span"),
    [
        (NEWEST, None, 70, None, (40, 70)),
        (NEWEST, None, 70, 60, (40, 60)),
        (None, 0, 70, None, (0, 70)),
        (None, 0, None, None, (0, 0)),
        (None, 30, None, None, (30, 30)),
        (None, None, 70, None, (70, 70)),  # nothing before the first checkpoint is covered
        (None, None, None, None, (None, 0)),
        (Newest("b1", 1, "b1", 0, 1, None, 0), None, 70, None, (70, 70)),
    ],
)
def test_the_span_that_a_log_covers(
    tmp_path: Any, newest: Newest | None, floor: int | None, checkpoint: int | None, endts: int | None,
    span: tuple[int | None, int],
) -> None:  # fmt: skip
    settings = TaskSettings("br", "h", ("t",), endts=endts)
    request = LogRequest(str(tmp_path), "prod", settings, {})
    work = Workspace(request, "prod", Reporter(io.StringIO(), io.StringIO()))
    row = publish.row_of(request, work, flush(newest, floor), Totals(), checkpoint, "tso")
    assert (row.start_ts, row.end_ts) == span
    assert (row.kind, row.level, row.parent_place) == ("log", 1, 1 if newest else None)
    assert row.base == ("b1" if newest else row.backup_id)


def test_pause_and_stop_name_the_checkpoint() -> None:
    assert pause._outcome({"checkpoint_ts": 7, "at_work": True}) == "Paused at 7."
    assert pause._outcome({"checkpoint_ts": None, "at_work": False}) == (
        "Paused; no checkpoint is known yet. No job of it was at work: nothing was flushed."
    )
    assert stop._outcome({"checkpoint_ts": 7, "lost": {}}).endswith("\nStopped at --startts=7.")
    assert stop._outcome({"checkpoint_ts": None, "lost": {}}).endswith(
        "\nStopped; no checkpoint is known yet."
    )


def test_flags_that_a_job_gets(tmp_path: Path) -> None:
    """They are those of the command that starts it, except flags that `launch` adds and flags of output."""
    repository_pairs = []

    @verb(options.REPO, options.KAFKA_CLIENT, options.LEASE, options.BANDWIDTH, options.CLUSTER)
    def start(call: Call) -> None:
        repository_pairs.append((place_of(call, run=True, metrics_port=9), place_of(call)))

    app = start.command()
    command_flags = ["--repo", str(tmp_path), "--catalog", "c", "--json"]
    job_flags = ["--lease-ttl", "5s", "-X", "a=b", "--bandwidth", "5MB/s", "--master", "local"]
    job_flags += ["--spark-conf", "c=d", "--spark-conf", "e=f"]
    app([*command_flags, *job_flags], standalone_mode=False)
    app(command_flags, standalone_mode=False)
    assert repository_pairs[0][0].options == [*job_flags, "--metrics-port", "9"]
    assert repository_pairs[1][0].options == ["--metrics-port", "9"]
    assert repository_pairs[0][1].options is None
