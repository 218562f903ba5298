"""What changed between two backups, key by key, by DuckDB over real files: no broker, no Java."""

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


def difference(made: MadeBackups, a: str, b: str) -> list[tuple[dict[str, Any], list[tuple[str, str]]]]:
    made.flush()
    return [
        (topic.totals(), [(row["change"], row["key"]) for row in topic.rows.read_all().to_pylist()])
        for topic in run(DiffRequest(str(made.folder), a, b), reporter=quiet())
    ]


def test_of_one_chain_only_what_came_after_is_read(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    made.backup([records(0, ("a", "1"), ("b", "1"), ("c", "1"), ("d", None))])
    for number in range(20):
        made.backup([records(4 + number, (f"other-{number}", "1"))])
    first = made.backup([records(24, ("b", "2"))])
    last = made.backup(
        [records(30, ("b", None), ("c", "1"), ("a", "2"), ("a", "3"), ("d", "1"), ("e", None), (None, "x"))]
    )
    assert difference(made, first, last) == [
        (
            {
                "scope": "orders", "added": 1, "gone": 1, "changed": 1, "without_key": 1,
                # The one that came after, and of those before only those that hold a, b, c, d or e.
                "files_opened": 3,
            },
            [("changed", "a"), ("gone", "b"), ("added", "d")],
        )
    ]  # fmt: skip
    ((totals, rows),) = difference(made, last, first)
    assert (totals["added"], totals["gone"], totals["changed"]) == (1, 1, 1)
    assert rows == [("changed", "a"), ("added", "b"), ("gone", "d")]
    assert difference(made, first, first)[0][1] == []


def test_how_much_of_the_files_was_compared_is_reported(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    first = made.backup([records(0, ("a", "1")), records(0, ("0", "1"), ("z", "1"), partition=1)])
    last = made.backup([records(1, ("a", "2"))])
    made.flush()
    sizes = [path.stat().st_size for path in sorted(tmp_path.rglob("*.data"))]
    report = Counting()
    list(run(DiffRequest(str(tmp_path), first, last), reporter=report))
    new, old = report.stages
    assert (new.what, new.unit, new.total) == ("comparing", "files", 1)
    assert (new.done, new.done_bytes) == (1, new.total_bytes)
    # Of those before, one is ruled out by its key filter, and counts as done too.
    assert (old.total, old.total_bytes) == (2, sum(sizes) - (new.total_bytes or 0))
    assert (old.done, old.done_bytes) == (2, old.total_bytes)


def test_of_two_chains_and_of_topics_that_come_and_go(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    first = made.backup([records(0, ("a", "1"), ("b", "1")), records(0, ("a", "1"), partition=1)])
    second = made.backup([records(1, ("b", "1"), ("c", "1"))], full=True, low={0: 1})
    ((totals, rows),) = difference(made, first, second)
    assert totals["scope"] == "orders"
    assert rows == [("gone", "a"), ("added", "c"), ("gone", "a")]
    bills = made.backup([records(0, ("x", "1"))], full=True, topic="bills")
    found = {totals["scope"]: rows for totals, rows in difference(made, first, bills)}
    assert found == {"bills": [("added", "x")], "orders": [("gone", "a"), ("gone", "b"), ("gone", "a")]}
