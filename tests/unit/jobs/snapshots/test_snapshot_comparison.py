"""How the work of a snapshot's backup is divided among its tasks."""

from __future__ import annotations

import pyarrow as pa

from lakebackup.plan.snapshots.backup import FILE_COST, ROW_COST, Amount
from lakebackup.store.plan_file import EMPTY, write_plan_file
from lakebackup_jobs.snapshots.compare import Comparison

MIB = 1 << 20


def comparison(links_of_files: list[int], file_bytes: int) -> Comparison:
    """A comparison that found new files of one size, each with some hard links."""
    rows = [
        {
            "first_scope": "t",
            "first_region": "a",
            "first_name": f"{number:03d}",
            "cost": ROW_COST if link else file_bytes + FILE_COST,
        }
        for number, links in enumerate(links_of_files)
        for link in range(links)
    ]
    copies = len(links_of_files)
    amount = Amount({"new": len(rows)}, len(rows), 0, copies, copies * file_bytes, 0)
    return Comparison(amount, (), write_plan_file([pa.Table.from_pylist(rows).to_reader(4)]))


def test_tasks_get_about_as_much_work_and_all_links_of_a_file() -> None:
    shares = comparison([1, 5, 1, 1, 1, 1, 1, 1], 30 * MIB).shares(2)
    assert [(share.first, share.end) for share in shares] == [(0, 6), (6, 8), (8, 10), (10, 12)]


def test_little_work_is_one_task() -> None:
    (share,) = comparison([1, 2, 1], MIB).shares(2)
    assert (share.first, share.end) == (0, 4)


def test_a_large_file_is_a_share_of_its_own() -> None:
    large = comparison([1], 1 << 30)
    assert [(share.first, share.end) for share in large.shares(4)] == [(0, 1)]


def test_an_unchanged_snapshot_has_no_task() -> None:
    unchanged = Amount({"unchanged": 3}, 3, 300, 0, 0, 0)
    assert Comparison(unchanged, (), EMPTY).shares(2) == []
