"""What a backup of queues reads: the snapshot it is of, messages left out, and where it ends."""

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
from lakebackup_jobs.queues.backup.skipped import asked, by_partition
from lakebackup_jobs.queues.restore import job

TOLD = '{"format": 1, "graph": "social", "last_tid": %d, "queues": []}'


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "engine" / "snapshot"
    folder.mkdir(parents=True)
    return folder


def request(snapshot: Path | None, **changes: Any) -> QueueRequest:
    told = {"destination": "d", "source": "social", "topics": ("a",), "kafka": {}, "mode": "full", **changes}
    return QueueRequest(**told, snapshot=None if snapshot is None else str(snapshot))


def test_the_limit_of_a_full_is_that_of_its_snapshot(snapshot: Path) -> None:
    """The snapshot is a job within the job: without the limit, it and all after it would have none."""
    taken = FullSnapshot(request(snapshot, bandwidth=5_000), SimpleNamespace(source="social"))  # type: ignore[arg-type]
    assert taken.request("note").bandwidth == 5_000


@pytest.mark.parametrize("other", ["report", "folder", None])
def test_a_snapshot_that_is_replaced_while_its_full_is_taken_is_refused(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, other: str | None
) -> None:
    """Its files would be those of one snapshot, and the positions those of another: a restore would repeat
    what came between the two. The snapshot's own backup is a stand-in, in whose place the engine works."""
    told = snapshot.parent / "snapshot.json"
    told.write_text(TOLD % 1)

    def run(*_: Any, **__: Any) -> dict[str, Any]:
        if other == "report":
            told.write_text(TOLD % 2)
        elif other == "folder":
            snapshot.rename(snapshot.parent / "before")
            snapshot.mkdir()
        return {"backup_id": "s1"}

    asked_for = request(snapshot)
    taken = FullSnapshot(asked_for, SimpleNamespace(source="social", session=None, reporter=None))  # type: ignore[arg-type]
    monkeypatch.setattr(full_snapshot.backup_snapshot, "run", run)
    monkeypatch.setattr(taken, "found", lambda *_: None)
    monkeypatch.setattr(taken, "_hold", lambda *_: True)
    draft: Any = SimpleNamespace(note="n", asked={"snapshot_is": read_report(asked_for).mark})
    if other is None:
        assert taken.take(draft, None) == "s1"  # type: ignore[arg-type]
        return
    with pytest.raises(Refused, match="was replaced while its full was taken"):
        taken.take(draft, None)  # type: ignore[arg-type]


def test_the_limit_of_a_restore_is_that_of_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot's own restore is a stand-in, which keeps what it is asked."""
    found: list[Any] = []
    monkeypatch.setattr(job.restore_snapshot, "run", lambda asked, **_: found.append(asked))
    folder = SimpleNamespace(has_snapshot=lambda _: bool(found), snapshot_being=lambda _: "being")
    run = SimpleNamespace(
        request=QueueRestoreRequest("d", source="social", target="", folder="f", bandwidth=5_000),
        work=SimpleNamespace(session=None), reporter=None, _folder=folder,
    )  # fmt: skip
    made = SimpleNamespace(source="social", snapshot_id="b1")
    job._Run._snapshot(run, "r1", made)  # type: ignore[arg-type]
    assert [one.bandwidth for one in found] == [5_000]


def test_snapshot_json_tells_one_snapshot_from_another(snapshot: Path) -> None:
    told = snapshot.parent / "snapshot.json"
    told.write_text(TOLD % 1)
    first = read_report(request(snapshot))
    os.utime(snapshot, ns=(1, 1))
    assert read_report(request(snapshot)) == first
    told.write_text(TOLD % 2)
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


def test_positions_may_be_elsewhere(snapshot: Path, tmp_path: Path) -> None:
    (snapshot.parent / "snapshot.json").write_text(TOLD % 1)
    elsewhere = tmp_path / "positions.json"
    elsewhere.write_text(TOLD % 7)
    found = read_report(request(snapshot, positions=str(elsewhere)))
    assert found.where == str(elsewhere)
    assert found.read.last_tid == 7


def test_only_who_asks_finds_what_is_wrong(snapshot: Path, tmp_path: Path) -> None:
    missing = read_report(request(snapshot, positions=str(tmp_path / "none.json")))
    with pytest.raises(NotFound, match=r"none\.json cannot be read"):
        _ = missing.read
    (snapshot.parent / "snapshot.json").write_text("{")
    torn = read_report(request(snapshot))
    with pytest.raises(UsageProblem, match="is not JSON"):
        _ = torn.read


def test_no_child_looks_at_a_snapshot(snapshot: Path) -> None:
    (snapshot.parent / "snapshot.json").write_text(TOLD % 1)
    for mode in ("differential", "incremental"):
        assert read_report(request(snapshot, mode=mode)).data is None
    assert read_report(request(snapshot, mode="auto")).data is not None
    assert read_report(request(None)).data is None


# --- messages that are left out

TOPICS = [TopicState("delta.1", "e1", 2, 1, {}), TopicState("journal", "e2", 1, 1, {})]


def test_a_place_is_of_the_topic_as_it_is_now() -> None:
    found = asked(["delta.1[1]@4711", "journal[0]@0", "delta.1[01]@4711"], TOPICS)
    assert found == {("delta.1", "e1", "1", 4711), ("journal", "e2", "0", 0)}
    assert by_partition(found) == {("delta.1", "e1", "1"): [4711], ("journal", "e2", "0"): [0]}


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        *((text, UsageProblem, "does not name a message") for text in
          ("delta.1", "delta.1[0]", "delta.1[0]@-1", "delta.1[x]@1", "[0]@1", "")),
        *((text, NotFound, "reads no such partition") for text in ("delta.1[2]@1", "other[0]@1")),
    ],
)  # fmt: skip
def test_what_names_no_message_that_is_read(text: str, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        asked([text], TOPICS)


# --- where it ends

Row = tuple[int, int]  # offset and tid; a watermark's is -1


def region(number: int, end: int) -> RegionState:
    return RegionState("delta", "e", str(number), 0, end, end, None)


def ends(
    monkeypatch: pytest.MonkeyPatch, held: dict[int, list[Row]], first: dict[int, int], later: dict[int, int]
) -> list[int]:
    """Where a backup ends that looked at ends, found the partitions grown, and reads what they hold."""

    def blocks(_: Tails, at: RegionState, start: int, end: int) -> Iterator[tuple[Longs, Longs]]:
        rows = [row for row in held[int(at.region)] if start <= row[0] < end]
        if rows:
            offsets, tids = np.array(rows, np.int64).T
            yield offsets, tids

    monkeypatch.setattr(Tails, "_blocks", blocks)
    before, after = ([region(n, end) for n, end in some.items()] for some in (first, later))
    found = Tails({}, "read_committed", HeaderNames()).settled(before, lambda: after)
    return [one.end for one in found]


def test_what_came_with_an_earlier_tid_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {0: [(0, 1), (1, 4)], 1: [(0, 2), (1, 3), (2, 5)]}
    assert ends(monkeypatch, held, {0: 2, 1: 1}, {0: 2, 1: 3}) == [2, 2]
    # Taking one may make another an earlier one.
    held = {0: [(0, 1), (1, 9), (2, 3)], 1: [(0, 4), (1, 8), (2, 10)]}
    assert ends(monkeypatch, held, {0: 1, 1: 1}, {0: 3, 1: 3}) == [3, 2]


def test_what_a_restore_puts_there_meanwhile_is_another_history(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {0: [(0, 1), (1, 6)], 1: [(0, 2), (1, 3), (2, -1), (3, 4), (4, 5)]}
    assert ends(monkeypatch, held, {0: 2, 1: 1}, {0: 2, 1: 5}) == [2, 2]


def test_a_new_leaders_epoch_is_recorded_with_what_was_taken_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next backup would take the end of the epoch before for a cut."""
    rows = np.array([[0, 1], [1, 2], [2, 3]], np.int64)
    monkeypatch.setattr(Tails, "_blocks", lambda _self, _at, start, end: iter([rows[start:end].T]))
    before, after = [replace(region(0, 1), leader_epoch=3)], [replace(region(0, 3), leader_epoch=4)]
    other, later = replace(region(1, 3), leader_epoch=3), replace(region(1, 3), leader_epoch=4)
    found = Tails({}, "read_committed", HeaderNames()).settled([*before, other], lambda: [*after, later])
    assert [(one.end, one.leader_epoch) for one in found] == [(3, 4), (3, 3)]


def test_a_queue_that_was_cut_back_ends_there_however_far_it_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Log:
        def ends(self, asked: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
            return {one: EpochEnd(3, 6 if one.region == "0" else one.position) for one in asked}

    monkeypatch.setattr(planner, "Logs", lambda *_: Log())
    now = [replace(region(number, 30), leader_epoch=4) for number in range(3)]
    starts = [Start("delta", "e", str(number), 9, 9, None, 3) for number in range(2)]
    run = object.__new__(planner.QueuePlanner)
    run.regions, run.request = now, request(None)
    assert [one.end for one in run._whole(starts)] == [6, 30, 30]
    others = [BackupEnd(0, "delta", "e", region, 6, 3) for region in "019"]
    assert run.cuts(others) == {}
