"""Which interrupted backups of a snapshot are resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakebackup.plan.snapshots.backup import Amount, Newest, Snapshot, Unit
from lakebackup_jobs.snapshots.resume import InProgress

BACKUP = "20260101T000000Z-aaaaaaaa"
NEWEST = Newest("20250101T000000Z-aaaaaaaa", 1, 10)
PRUNED = {"at": None, "deleted": 0}
SNAPSHOT = Snapshot("s1", 20, (Unit("x", "a", "/x/a"),))
DRAFT = InProgress(
    backup_id=BACKUP,
    number=2,
    started_at=0,
    kind="differential",
    parent=NEWEST.backup_id,
    compared_with=NEWEST.backup_id,
    pruned=PRUNED,
    snapshot="s1",
    lasting=True,
    end_ts=20,
    tables={"x": 1},
    amount=Amount({"new": 2, "unchanged": 1}, 3, 300, 2, 200, 0),
    tasks=1,
    pack_below=0,
    asked={"note": None},
    dealt=True,
)
UNCHANGED: dict[str, Any] = {
    "request_fields": {"note": None}, "next_snapshot": SNAPSHOT, "end_ts": 20, "newest": NEWEST,
    "pruned": PRUNED,
    "counted": lambda _: (3, 300),
}  # fmt: skip


def test_a_backup_is_resumed_when_nothing_changed() -> None:
    assert DRAFT.blocker(**UNCHANGED) is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"request_fields": {"note": "other"}}, "another way"),
        ({"next_snapshot": replace(SNAPSHOT, id="s2")}, "another snapshot"),
        ({"next_snapshot": None, "end_ts": None}, "another snapshot"),
        ({"newest": None}, "another backup"),
        ({"pruned": {"at": None, "deleted": 1}}, "a prune ran"),
        (
            {"next_snapshot": replace(SNAPSHOT, units=(*SNAPSHOT.units, Unit("x", "b", "/x/b")))},
            "not what it was",
        ),
        ({"end_ts": 21}, "not what it was"),
        ({"counted": lambda _: (4, 300)}, "not what it was"),
        ({"counted": lambda _: (3, 301)}, "not what it was"),
    ],
)
def test_a_change_blocks_the_resumption(changed: dict[str, Any], why: str) -> None:
    assert why in str(DRAFT.blocker(**UNCHANGED | changed))


def test_a_snapshot_without_a_name_is_not_resumed() -> None:
    assert "names no snapshot" in str(replace(DRAFT, lasting=False).blocker(**UNCHANGED))


def test_only_the_same_command_means_the_same_backup() -> None:
    assert DRAFT.is_requested({"note": None}, SNAPSHOT, 20)
    assert not DRAFT.is_requested({"note": "other"}, SNAPSHOT, 20)
    assert not DRAFT.is_requested({"note": None}, replace(SNAPSHOT, id="s2"), 20)
    assert not DRAFT.is_requested({"note": None}, SNAPSHOT, 21)
