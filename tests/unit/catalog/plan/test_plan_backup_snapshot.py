from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.snapshots.backup import (
    FILE_COST,
    ROW_COST,
    Amount,
    Newest,
    Snapshot,
    Unit,
    choose,
    newest_of,
    require_distinct,
    require_later,
    require_restorable,
)

GIB = 1 << 30
SNAPSHOTS = [Snapshot(name, ts, ()) for name, ts in (("b", 20), ("a", 10), ("c", 30))]


def amount(files: int, size: int, **changes: int) -> Amount:
    return Amount({"new": files, **changes}, files, size, files, size, 0)


@pytest.mark.parametrize(
    ("ids", "everything", "newest", "expected_ids"),
    [
        ((), False, None, ["c"]),
        ((), True, None, ["a", "b", "c"]),
        ((), True, Newest("x", 1, 10), ["b", "c"]),
        ((), True, Newest("x", 1, 30), []),
        (("b", "a"), False, None, ["a", "b"]),
    ],
)
def test_new_or_named_snapshots_are_chosen(
    ids: tuple[str, ...], everything: bool, newest: Newest, expected_ids: list[str]
) -> None:
    snapshots = choose(SNAPSHOTS, ids=ids, everything=everything, newest=newest)
    assert [snapshot.id for snapshot in snapshots] == expected_ids


def test_a_missing_snapshot_is_reported() -> None:
    with pytest.raises(NotFound, match=r"no snapshot z[\s\S]*a, b, c"):
        choose(SNAPSHOTS, ids=["z"], everything=False, newest=None)


def test_backups_follow_each_other_in_time() -> None:
    require_later("db", "Snapshot b", 31, Newest("x", 1, 30))
    require_later("db", "Snapshot b", 1, None)
    require_later("db", "Snapshot b", 1, Newest("x", 1, None))  # that one is from the future
    with pytest.raises(UsageProblem, match=r"Snapshot b is of 1970-01-01T00:00:00.030Z.*db already hold"):
        require_later("db", "Snapshot b", 30, Newest("x", 1, 30))


def test_work_is_divided_into_tasks_of_bounded_size() -> None:
    assert amount(0, 0, unchanged=10**6).tasks(4) == 0
    assert amount(2_000, 64 << 20).tasks(4) == 1
    assert amount(3_000, 64 << 20).tasks(4) == 8
    assert amount(10, GIB).tasks(4) == 8
    assert amount(10, 100 * GIB).tasks(4) == 400
    assert amount(10, 10_000 * GIB).tasks(4) == 2_000
    assert amount(0, 0, gone=10_000_000).tasks(4) == 38  # a task holds no more rows than this


def test_amounts_are_summed_over_kinds_of_change() -> None:
    rows = [
        {"change": "new", "files": 2, "bytes": 30, "copies": 1, "copy_bytes": 15, "small": 1},
        {"change": "gone", "files": 5, "bytes": 0, "copies": 0, "copy_bytes": 0, "small": 0},
        {"change": "unchanged", "files": 7, "bytes": 70, "copies": 0, "copy_bytes": 0, "small": 0},
    ]
    total = Amount.of(rows)
    assert (total.listed, total.listed_bytes, total.rows, total.copies) == (9, 100, 7, 1)
    assert total.cost == 15 + FILE_COST + 6 * ROW_COST


def test_a_tablet_has_one_folder() -> None:
    units = [Unit("t", "a", "/1"), Unit("t", "b", "/1"), Unit("t", "a", "/1", prefix="x/")]
    require_distinct(units)
    with pytest.raises(UsageProblem, match="/1 and /2 both hold tablet a of t"):
        require_distinct([*units, Unit("t", "a", "/2")])
    with pytest.raises(UsageProblem, match="meta file f"):
        require_distinct([Unit("-", "-", f"/{n}", role="meta", file="f") for n in range(2)])
    assert Snapshot("s", 1, (*units, Unit("-", "-", "/1", file="f"))).tables == {"t": 2}


def test_a_source_is_of_one_kind() -> None:
    newest = {"backup_id": "x", "number": 1, "end_ts": 10, "source_kind": "snapshot"}
    reader: Any = SimpleNamespace(first_row=lambda *_, **__: newest)
    assert newest_of(reader, "db") == Newest("x", 1, 10)
    newest["source_kind"] = "kafka"
    with pytest.raises(Refused, match=r"another kind: topics"):
        newest_of(reader, "db")


@pytest.mark.parametrize(
    ("units", "complaint"),
    [
        ([Unit("", "-", "/")], "it is empty"),
        ([Unit("..", "-", "/x")], "'..'"),
        ([Unit("t", "..", "/x")], "'..'"),
        ([Unit(".lakebackup-restore", "-", "/x")], "is reserved for the restore"),
        ([Unit("t", "a", "/x"), Unit("-", "-", "/y", role="meta", file="t")], "/y/t has the name of a table"),
        ([Unit("-", "-", "/y", role="meta", file=".lakebackup-restore")], "is reserved for the restore"),
    ],
)
def test_names_that_cannot_be_restored_are_refused(units: list[Unit], complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        require_restorable(units)


def test_names_that_can_be_restored_are_accepted() -> None:
    require_restorable(
        [Unit("t", "-", "/x"), Unit("u", "a", "/x"), Unit("-", "-", "/y", file="SnapshotInfo")]
    )
