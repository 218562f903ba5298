"""A backup of a snapshot that was cut off: when it is gone on with, and how it goes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from lakebackup.plan.snapshots.backup import Amount, Newest, Snapshot, Unit
from lakebackup.rules import layout
from lakebackup.storage import local, open_storage
from lakebackup_jobs.snapshots import resume as begin
from lakebackup_jobs.snapshots.resume import Begun

if TYPE_CHECKING:
    from pathlib import Path

BACKUP = "20260101T000000Z-aaaaaaaa"
NEWEST = Newest("20250101T000000Z-aaaaaaaa", 1, 10)
PRUNED = {"at": None, "deleted": 0}
SNAPSHOT = Snapshot("s1", 20, (Unit("x", "a", "/x/a"),))
BEGUN = Begun(
    backup_id=BACKUP, number=2, started_at=0, kind="differential", parent=NEWEST.backup_id,
    compared_with=NEWEST.backup_id, pruned=PRUNED, snapshot="s1", lasting=True, end_ts=20, tables={"x": 1},
    amount=Amount({"new": 2, "unchanged": 1}, 3, 300, 2, 200, 0), tasks=1, pack_below=0,
    asked={"note": None}, dealt=True,
)  # fmt: skip
SAME: dict[str, Any] = {
    "asked": {"note": None}, "next_one": SNAPSHOT, "end_ts": 20, "newest": NEWEST, "pruned": PRUNED,
    "counted": lambda _: (3, 300),
}  # fmt: skip


def test_it_is_resumed_when_all_is_as_it_was() -> None:
    assert BEGUN.hindrance(**SAME) is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"asked": {"note": "other"}}, "another way"),
        ({"next_one": replace(SNAPSHOT, id="s2")}, "another snapshot"),
        ({"next_one": None, "end_ts": None}, "another snapshot"),
        ({"newest": None}, "another backup"),
        ({"pruned": {"at": None, "deleted": 1}}, "a prune came in"),
        ({"next_one": replace(SNAPSHOT, units=(*SNAPSHOT.units, Unit("x", "b", "/x/b")))}, "not what it was"),
        ({"end_ts": 21}, "not what it was"),
        ({"counted": lambda _: (4, 300)}, "not what it was"),
        ({"counted": lambda _: (3, 301)}, "not what it was"),
    ],
)
def test_what_blocks_it(changed: dict[str, Any], why: str) -> None:
    assert why in str(BEGUN.hindrance(**SAME | changed))


def test_what_is_no_snapshot_of_a_name_is_not_resumed() -> None:
    assert "names no snapshot" in str(replace(BEGUN, lasting=False).hindrance(**SAME))


def test_it_is_the_same_backup_for_the_same_command_alone() -> None:
    assert BEGUN.same({"note": None}, SNAPSHOT, 20)
    assert not BEGUN.same({"note": "other"}, SNAPSHOT, 20)
    assert not BEGUN.same({"note": None}, replace(SNAPSHOT, id="s2"), 20)
    assert not BEGUN.same({"note": None}, SNAPSHOT, 21)


class Killed(BaseException):
    """No handler takes it."""


def test_one_that_is_being_discarded_is_not_resumed_whenever_that_is_cut_off(tmp_path: Path) -> None:
    paths = [
        layout.manifest_path("db", BACKUP),
        f"{layout.snapshot_folder('db', BACKUP)}x/a/1",
        f"{layout.snapshot_folder('db', BACKUP)}x/a/2",
        f"{layout.backup_folder('db', BACKUP)}work/share-000000.parquet",
        layout.parts_path("db", BACKUP, 0),
    ]
    delete = local.LocalStorage.delete
    for steps in range(len(paths) + 1):
        storage = open_storage(str(tmp_path / str(steps)))
        for path in paths:
            storage.put(path, b"x")
        begin.begin(storage, "db", BEGUN)
        taken: list[str] = []

        def dying(there: local.LocalStorage, path: str, taken: list[str] = taken, at: int = steps) -> None:
            if len(taken) == at:
                raise Killed
            taken.append(path)
            delete(there, path)

        with mock.patch.object(local.LocalStorage, "delete", dying), pytest.raises(Killed):
            begin.take_away(storage, "db", BACKUP)
        left = begin.found(storage, "db")
        assert left is not None
        assert "not planned" in str(left.hindrance(**SAME)), taken
        begin.take_away(storage, "db", BACKUP)
        assert begin.found(storage, "db") is None
        assert not list(storage.list("db/"))
