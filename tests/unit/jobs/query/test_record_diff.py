"""The difference of two backups, key by key, by DuckDB over real files: no broker, no Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.command_line import Counting, quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.plan.diff import DiffRequest
from lakebackup_jobs.query.record_diff import run


def records(first: int, *pairs: tuple[str | None, str | None], partition: int = 0) -> list[Record]:
    return [
        Record(
            partition,
            first + i,
            first + i,
            None if key is None else key.encode(),
            None if value is None else value.encode(),
        )
        for i, (key, value) in enumerate(pairs)
    ]


def difference(backups: MadeBackups, a: str, b: str) -> list[tuple[dict[str, Any], list[tuple[str, str]]]]:
    backups.flush()
    return [
        (topic.totals(), [(row["change"], row["key"]) for row in topic.rows.read_all().to_pylist()])
        for topic in run(DiffRequest(str(backups.folder), a, b), reporter=quiet())
    ]


def test_within_a_chain_only_files_with_changed_keys_are_read(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([records(0, ("a", "1"), ("b", "1"), ("c", "1"), ("d", None))])
    for number in range(20):
        backups.backup([records(4 + number, (f"other-{number}", "1"))])
    first = backups.backup([records(24, ("b", "2"))])
    last = backups.backup(
        [records(30, ("b", None), ("c", "1"), ("a", "2"), ("a", "3"), ("d", "1"), ("e", None), (None, "x"))]
    )
    assert difference(backups, first, last) == [
        (
            {
                "scope": "orders", "added": 1, "gone": 1, "changed": 1, "without_key": 1,
                # The newer file, and of the older ones only those that hold a, b, c, d or e.
                "files_opened": 3,
            },
            [("changed", "a"), ("gone", "b"), ("added", "d")],
        )
    ]  # fmt: skip
    ((totals, rows),) = difference(backups, last, first)
    assert (totals["added"], totals["gone"], totals["changed"]) == (1, 1, 1)
    assert rows == [("changed", "a"), ("added", "b"), ("gone", "d")]
    assert difference(backups, first, first)[0][1] == []


def test_progress_counts_the_compared_files(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    first = backups.backup([records(0, ("a", "1")), records(0, ("0", "1"), ("z", "1"), partition=1)])
    last = backups.backup([records(1, ("a", "2"))])
    backups.flush()
    sizes = [path.stat().st_size for path in sorted(tmp_path.rglob("*.data"))]
    report = Counting()
    list(run(DiffRequest(str(tmp_path), first, last), reporter=report))
    new, old = report.stages
    assert (new.title, new.unit, new.total) == ("comparing", "files", 1)
    assert (new.finished, new.done_bytes) == (1, new.total_bytes)
    # A key filter rules out one of the older files, which counts as done too.
    assert (old.total, old.total_bytes) == (2, sum(sizes) - (new.total_bytes or 0))
    assert (old.finished, old.done_bytes) == (2, old.total_bytes)


def test_two_chains_and_topics_of_only_one_backup_are_compared(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    first = backups.backup([records(0, ("a", "1"), ("b", "1")), records(0, ("a", "1"), partition=1)])
    second = backups.backup([records(1, ("b", "1"), ("c", "1"))], full=True, low={0: 1})
    ((totals, rows),) = difference(backups, first, second)
    assert totals["scope"] == "orders"
    assert rows == [("gone", "a"), ("added", "c"), ("gone", "a")]
    bills = backups.backup([records(0, ("x", "1"))], full=True, topic="bills")
    rows_by_topic = {totals["scope"]: rows for totals, rows in difference(backups, first, bills)}
    assert rows_by_topic == {
        "bills": [("added", "x")],
        "orders": [("gone", "a"), ("gone", "b"), ("gone", "a")],
    }
