"""A backup of queues: its snapshot, the messages that it leaves out, and its end positions."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.queues.history import Start
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup.plan.topics.forks import BackupEnd, EpochEnd
from lakebackup_jobs.kafka.memory import Longs
from lakebackup_jobs.queues.backup import full_snapshot, planner
from lakebackup_jobs.queues.backup.cut import Tails
from lakebackup_jobs.queues.backup.full_snapshot import FullSnapshot
from lakebackup_jobs.queues.backup.request import QueueRequest, read_report
from lakebackup_jobs.queues.backup.skipped import by_partition, parse_messages
from lakebackup_jobs.queues.restore import job

REPORT = '{"format": 1, "graph": "social", "last_tid": %d, "queues": []}'


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "engine" / "snapshot"
    folder.mkdir(parents=True)
    return folder


def request(snapshot: Path | None, **changes: Any) -> QueueRequest:
    fields = {
        "destination": "d",
        "source": "social",
        "topics": ("a",),
        "kafka": {},
        "mode": "full",
        **changes,
    }
    return QueueRequest(**fields, snapshot=None if snapshot is None else str(snapshot))


def test_a_full_passes_its_bandwidth_limit_to_its_snapshot(snapshot: Path) -> None:
    """The snapshot is a job within the job. Without the limit, neither it nor what follows would have one."""
    full = FullSnapshot(request(snapshot, bandwidth=5_000), SimpleNamespace(source="social"))  # type: ignore[arg-type]
    assert full.request("note").bandwidth == 5_000


@pytest.mark.parametrize("replaced", ["report", "folder", None])
def test_a_snapshot_that_is_replaced_while_its_full_is_taken_is_refused(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, replaced: str | None
) -> None:
    """Files of one snapshot and positions of another would make a restore repeat the changes between them.

    A stand-in takes the place of the snapshot's own backup, and replaces the snapshot as the engine would.
    """
    report = snapshot.parent / "snapshot.json"
    report.write_text(REPORT % 1)

    def run(*_: Any, **__: Any) -> dict[str, Any]:
        if replaced == "report":
            report.write_text(REPORT % 2)
        elif replaced == "folder":
            snapshot.rename(snapshot.parent / "before")
            snapshot.mkdir()
        return {"backup_id": "s1"}

    queue_request = request(snapshot)
    full = FullSnapshot(queue_request, SimpleNamespace(source="social", session=None, reporter=None))  # type: ignore[arg-type]
    monkeypatch.setattr(full_snapshot.backup_snapshot, "run", run)
    monkeypatch.setattr(full, "find_backup", lambda *_: None)
    monkeypatch.setattr(full, "_hold", lambda *_: True)
    draft: Any = SimpleNamespace(note="n", asked={"snapshot_is": read_report(queue_request).mark})
    if replaced is None:
        assert full.take_backup(draft, None) == "s1"  # type: ignore[arg-type]
        return
    with pytest.raises(Refused, match="was replaced while its full was taken"):
        full.take_backup(draft, None)  # type: ignore[arg-type]


def test_a_restore_passes_its_bandwidth_limit_to_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the snapshot's own restore collects its requests."""
    requests: list[Any] = []
    monkeypatch.setattr(
        job.restore_snapshot, "run", lambda snapshot_request, **_: requests.append(snapshot_request)
    )
    folder = SimpleNamespace(has_snapshot=lambda _: bool(requests), snapshot_being=lambda _: "being")
    run = SimpleNamespace(
        request=QueueRestoreRequest("d", source="social", target="", folder="f", bandwidth=5_000),
        work=SimpleNamespace(session=None), reporter=None, _folder=folder,
    )  # fmt: skip
    restore_point = SimpleNamespace(source="social", snapshot_id="b1")
    job._Run._snapshot(run, "r1", restore_point)  # type: ignore[arg-type]
    assert [recorded.bandwidth for recorded in requests] == [5_000]


def test_snapshot_json_tells_one_snapshot_from_another(snapshot: Path) -> None:
    report = snapshot.parent / "snapshot.json"
    report.write_text(REPORT % 1)
    first = read_report(request(snapshot))
    os.utime(snapshot, ns=(1, 1))
    assert read_report(request(snapshot)) == first
    report.write_text(REPORT % 2)
    second = read_report(request(snapshot))
    assert second.mark not in (None, first.mark)
    assert second.read.last_tid == 2


def test_without_snapshot_json_the_folder_tells(snapshot: Path) -> None:
    os.utime(snapshot, ns=(1, 10**18))
    first = read_report(request(snapshot))
    assert first.read is None
    assert read_report(request(snapshot)).mark == first.mark is not None
    os.utime(snapshot, ns=(1, 10**18 + 1))
    assert read_report(request(snapshot)).mark != first.mark
    assert read_report(request(snapshot.parent / "on a worker")).mark is None


def test_the_report_may_lie_elsewhere(snapshot: Path, tmp_path: Path) -> None:
    (snapshot.parent / "snapshot.json").write_text(REPORT % 1)
    elsewhere = tmp_path / "positions.json"
    elsewhere.write_text(REPORT % 7)
    report = read_report(request(snapshot, positions=str(elsewhere)))
    assert report.path == str(elsewhere)
    assert report.read.last_tid == 7


def test_a_bad_report_fails_only_when_it_is_read(snapshot: Path, tmp_path: Path) -> None:
    missing = read_report(request(snapshot, positions=str(tmp_path / "none.json")))
    with pytest.raises(NotFound, match=r"none\.json cannot be read"):
        _ = missing.read
    (snapshot.parent / "snapshot.json").write_text("{")
    torn = read_report(request(snapshot))
    with pytest.raises(UsageProblem, match="is not JSON"):
        _ = torn.read


def test_incremental_backups_read_no_report_of_a_snapshot(snapshot: Path) -> None:
    (snapshot.parent / "snapshot.json").write_text(REPORT % 1)
    for mode in ("differential", "incremental"):
        assert read_report(request(snapshot, mode=mode)).data is None
    assert read_report(request(snapshot, mode="auto")).data is not None
    assert read_report(request(None)).data is None


# --- messages to leave out

TOPICS = [TopicState("delta.1", "e1", 2, 1, {}), TopicState("journal", "e2", 1, 1, {})]


def test_a_message_to_leave_out_is_of_the_present_epoch() -> None:
    messages = parse_messages(["delta.1[1]@4711", "journal[0]@0", "delta.1[01]@4711"], TOPICS)
    assert messages == {("delta.1", "e1", "1", 4711), ("journal", "e2", "0", 0)}
    assert by_partition(messages) == {("delta.1", "e1", "1"): [4711], ("journal", "e2", "0"): [0]}


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        *((text, UsageProblem, "does not name a message") for text in
          ("delta.1", "delta.1[0]", "delta.1[0]@-1", "delta.1[x]@1", "[0]@1", "")),
        *((text, NotFound, "reads no such partition") for text in ("delta.1[2]@1", "other[0]@1")),
    ],
)  # fmt: skip
def test_a_text_that_names_no_readable_message_is_refused(
    text: str, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        parse_messages([text], TOPICS)


# --- end positions

Row = tuple[int, int]  # offset and tid; a watermark's is -1


def region(number: int, end: int) -> RegionState:
    return RegionState("delta", "e", str(number), 0, end, end, None)


def ends(
    monkeypatch: pytest.MonkeyPatch,
    rows_by_partition: dict[int, list[Row]],
    first_ends: dict[int, int],
    later_ends: dict[int, int],
) -> list[int]:
    """The end positions of a backup whose partitions grew from `first_ends` to `later_ends` while it ran."""

    def blocks(_: Tails, state: RegionState, start: int, end: int) -> Iterator[tuple[Longs, Longs]]:
        rows = [row for row in rows_by_partition[int(state.region)] if start <= row[0] < end]
        if rows:
            offsets, tids = np.array(rows, np.int64).T
            yield offsets, tids

    monkeypatch.setattr(Tails, "_blocks", blocks)
    first_states, later_states = (
        [region(n, end) for n, end in ends_by_partition.items()]
        for ends_by_partition in (first_ends, later_ends)
    )
    settled_states = Tails({}, "read_committed", HeaderNames()).settled(first_states, lambda: later_states)
    return [state.end for state in settled_states]


def test_a_message_that_came_later_with_an_earlier_tid_is_included(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_by_partition = {0: [(0, 1), (1, 4)], 1: [(0, 2), (1, 3), (2, 5)]}
    assert ends(monkeypatch, rows_by_partition, {0: 2, 1: 1}, {0: 2, 1: 3}) == [2, 2]
    # A message that is included raises the tid up to which messages of other partitions are.
    rows_by_partition = {0: [(0, 1), (1, 9), (2, 3)], 1: [(0, 4), (1, 8), (2, 10)]}
    assert ends(monkeypatch, rows_by_partition, {0: 1, 1: 1}, {0: 3, 1: 3}) == [3, 2]


def test_messages_after_the_watermark_of_a_restore_are_not_included(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_by_partition = {0: [(0, 1), (1, 6)], 1: [(0, 2), (1, 3), (2, -1), (3, 4), (4, 5)]}
    assert ends(monkeypatch, rows_by_partition, {0: 2, 1: 1}, {0: 2, 1: 5}) == [2, 2]


def test_a_new_leader_epoch_is_recorded_with_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next backup would take the end of the earlier epoch for a cut."""
    rows = np.array([[0, 1], [1, 2], [2, 3]], np.int64)
    monkeypatch.setattr(Tails, "_blocks", lambda _self, _state, start, end: iter([rows[start:end].T]))
    grown_at_first, grown_later = (
        [replace(region(0, 1), leader_epoch=3)],
        [replace(region(0, 3), leader_epoch=4)],
    )
    unchanged_at_first, unchanged_later = (
        replace(region(1, 3), leader_epoch=3),
        replace(region(1, 3), leader_epoch=4),
    )
    settled_states = Tails({}, "read_committed", HeaderNames()).settled(
        [*grown_at_first, unchanged_at_first], lambda: [*grown_later, unchanged_later]
    )
    assert [(state.end, state.leader_epoch) for state in settled_states] == [(3, 4), (3, 3)]


def test_a_queue_that_was_cut_back_ends_at_the_cut_however_far_it_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Log:
        def ends(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
            return {
                backup_end: EpochEnd(3, 6 if backup_end.region == "0" else backup_end.position)
                for backup_end in backup_ends
            }

    monkeypatch.setattr(planner, "Logs", lambda *_: Log())
    regions = [replace(region(number, 30), leader_epoch=4) for number in range(3)]
    starts = [Start("delta", "e", str(number), 9, 9, None, 3) for number in range(2)]
    run = object.__new__(planner.QueuePlanner)
    run.regions, run.request = regions, request(None)
    assert [state.end for state in run._uncut_regions(starts)] == [6, 30, 30]
    later_ends = [BackupEnd(0, "delta", "e", region, 6, 3) for region in "019"]
    assert run.cuts(later_ends) == {}
