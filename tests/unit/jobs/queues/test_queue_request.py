"""What an engine says of its snapshot, and what tells one snapshot from another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup_jobs.queues.backup.request import QueueRequest, said_of

if TYPE_CHECKING:
    from pathlib import Path

TOLD = '{"format": 1, "graph": "social", "last_tid": %d, "queues": []}'


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "engine" / "snapshot"
    folder.mkdir(parents=True)
    return folder


def request(snapshot: Path | None, **changes: Any) -> QueueRequest:
    told = {"destination": "d", "source": "social", "topics": ("a",), "kafka": {}, "mode": "full", **changes}
    return QueueRequest(**told, snapshot=None if snapshot is None else str(snapshot))


def test_snapshot_json_tells_one_snapshot_from_another(snapshot: Path) -> None:
    told = snapshot.parent / "snapshot.json"
    told.write_text(TOLD % 1)
    first = said_of(request(snapshot))
    os.utime(snapshot, ns=(1, 1))
    assert said_of(request(snapshot)) == first
    told.write_text(TOLD % 2)
    second = said_of(request(snapshot))
    assert second.mark not in (None, first.mark)
    assert second.read is not None
    assert second.read.last_tid == 2


def test_without_snapshot_json_the_folder_tells(snapshot: Path) -> None:
    os.utime(snapshot, ns=(1, 10**18))
    first = said_of(request(snapshot))
    assert first.read is None
    assert said_of(request(snapshot)).mark == first.mark is not None
    os.utime(snapshot, ns=(1, 10**18 + 1))
    assert said_of(request(snapshot)).mark != first.mark
    assert said_of(request(snapshot.parent / "on a worker")).mark is None


def test_positions_may_be_elsewhere(snapshot: Path, tmp_path: Path) -> None:
    (snapshot.parent / "snapshot.json").write_text(TOLD % 1)
    elsewhere = tmp_path / "positions.json"
    elsewhere.write_text(TOLD % 7)
    found = said_of(request(snapshot, positions=str(elsewhere)))
    assert found.where == str(elsewhere)
    assert found.read is not None
    assert found.read.last_tid == 7


def test_only_who_asks_finds_what_is_wrong(snapshot: Path, tmp_path: Path) -> None:
    missing = said_of(request(snapshot, positions=str(tmp_path / "none.json")))
    with pytest.raises(NotFound, match=r"none\.json cannot be read"):
        _ = missing.read
    (snapshot.parent / "snapshot.json").write_text("{")
    torn = said_of(request(snapshot))
    with pytest.raises(UsageProblem, match="is not JSON"):
        _ = torn.read


def test_no_child_looks_at_a_snapshot(snapshot: Path) -> None:
    (snapshot.parent / "snapshot.json").write_text(TOLD % 1)
    for mode in ("differential", "incremental"):
        assert said_of(request(snapshot, mode=mode)).data is None
    assert said_of(request(snapshot, mode="auto")).data is not None
    assert said_of(request(None)).data is None
