"""What a restore of a change feed's log would read, and what stands against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.made_backups import MadeBackups
from tests.support.rows import backup_row, file_row, filled

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.logs.restore import (
    NEVER,
    LogRestorePlan,
    LogRestoreRequest,
    gap_note,
    last_ts,
    plan_restore,
    require_restorable,
)
from lakebackup.rows.backups import Floor, Gap
from lakebackup.rows.logs import LogTable
from lakebackup.rows.upkeep import Check

ASKED = LogRestoreRequest(destination="", name="shop")


class Log:
    """Rows of a log task's catalog: a flush each 100."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeBackups(folder)
        self.number = 0

    def backup(self, start_ts: int | None, end_ts: int, kind: Any = "log", **more: Any) -> str:
        self.number += 1
        full = kind == "full"
        given = {
            "source": "shop", "source_kind": "changes", "kind": kind, "level": 0 if full else 1,
            "destination": self.made.destination, "start_ts": start_ts, "end_ts": end_ts,
        }  # fmt: skip
        if not full:
            before = None if self.number == 1 else self.number - 1
            given |= {"base": backup_id(1), "parent_place": before}
        row = backup_row(self.number, **given | more)
        self.made.add(row)
        return row.backup_id

    def file(self, backup: str, table: int, cf: str, low: int, high: int, begin: int | None = None) -> str:
        path = f"shop/log/{backup}/{table}-{cf}-{low}"
        row = file_row(
            1, destination=self.made.destination, path=path, backup_id=backup, source="shop",
            scope=str(table), epoch="-", region="1", format="log-arrow-1", bytes=10, raw_bytes=20, entries=3,
            min_ts=low, max_ts=high, min_begin_ts=begin, end_position=1, start_key="61", end_key="62", cf=cf,
            op="put",
        )  # fmt: skip
        self.made.add(row)
        return path

    def checked(self, backup: str, path: str, outcome: str) -> None:
        """Record what a check found of a file of a backup."""
        where = {"backup_id": backup, "destination": self.made.destination, "path": path}
        self.made.add(filled(Check, at=1, mode="hash", outcome=outcome, **where))

    def table(self, table: int, name: str, from_ts: int, action: Any = "create", **more: Any) -> None:
        given = {"source": "shop", "table_id": table, "db": "shop", "name": name, "from_ts": from_ts}
        given |= {"backup_id": backup_id(1), "action": action, "covered_from": from_ts - 1}
        self.made.add(filled(LogTable, **given | more))

    def cut(self, ts: int) -> None:
        """Truncate the log."""
        place = {"scope": "-", "epoch": "-", "region": "-"}
        self.made.add(filled(Floor, source="shop", low_position=ts, **place))

    def plan(self, **asked: Any) -> LogRestorePlan:
        more = {name: asked.pop(name) for name in ("whole_from", "base", "leave_uncovered") if name in asked}
        return plan_restore(replace(ASKED, **asked), self.made.planner(), **more)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Covered: (0, 300]; tables 1 (orders) and 2 (items)."""
    made = Log(tmp_path)
    for number in range(3):
        backup = made.backup(100 * number, 100 * number + 100)
        made.file(backup, 1, "write", 100 * number + 10, 100 * number + 90, 100 * number + 5)
        made.file(backup, 2, "write", 100 * number + 10, 100 * number + 90)
        made.file(backup, 1, "default", 100 * number + 5, 100 * number + 80)
    made.table(1, "orders", 5)
    made.table(2, "items", 5)
    return made


def test_all_there_is(log: Log) -> None:
    plan = log.plan()
    assert (plan.start_ts, plan.end_ts, plan.full) == (0, 300, None)
    assert (plan.writes.files, plan.values.files) == (6, 3)
    assert [(table.table_id, table.name) for table in plan.tables] == [(1, "orders"), (2, "items")]
    assert (plan.begin_ts, plan.raw_bytes, plan.only) == (5, 180, None)


def test_a_span_reads_the_files_that_it_needs(log: Log) -> None:
    plan = log.plan(start_ts=150, end_ts=190, filters=("shop.orders",))
    assert (plan.writes.files, plan.values.files, plan.only) == (1, 1, (1,))


@pytest.mark.parametrize(("start", "end"), [(0, 301), (300, 400), (None, 301)])
def test_what_is_not_covered_is_refused(log: Log, start: int | None, end: int) -> None:
    with pytest.raises(Refused, match=r"after 0 .* up to 300"):
        log.plan(start_ts=start, end_ts=end)


def test_a_hole_in_the_log_parts_it_and_what_was_truncated_is_not_covered(log: Log) -> None:
    log.backup(400, 500)
    with pytest.raises(Refused, match=r"up to 300 .*; after 400"):
        log.plan(start_ts=200, end_ts=450)
    assert log.plan(end_ts=450).start_ts == 400
    log.cut(150)
    assert log.plan(end_ts=300).start_ts == 150
    with pytest.raises(Refused, match="after 150"):
        log.plan(start_ts=100, end_ts=300)


@pytest.mark.parametrize(
    ("asked", "error", "why"),
    [
        ({"start_ts": 200, "end_ts": 200}, UsageProblem, "Nothing lies between"),
        ({"name": "other"}, NotFound, "no log of other"),
        ({"filters": ("shop.none",)}, NotFound, "No table"),
        ({"end_ts": 4}, Refused, "starts at 5 "),
    ],
)
def test_what_there_is_nothing_of(log: Log, asked: dict[str, Any], error: Any, why: str) -> None:
    with pytest.raises(error, match=why):
        log.plan(**asked)


def test_names_are_those_at_the_end(log: Log) -> None:
    assert len(log.plan(end_ts=5).tables) == 2
    log.table(1, "old", 120, "rename", covered_from=4)
    log.table(3, "orders", 250, "truncate", replaces=2)
    assert log.plan(end_ts=119, filters=("*.orders",)).only == (1,)
    assert log.plan(end_ts=120, filters=("!*.orders",)).only == (1, 2)
    last = log.plan(end_ts=250)
    assert (last.without, last.changed) == ((2,), (1, 2))
    assert [(table.table_id, table.name) for table in last.tables] == [(1, "old"), (3, "orders")]


def test_a_table_that_came_into_the_filter_later(log: Log) -> None:
    log.table(4, "elsewhere", 50, covered_from=NEVER)
    log.table(4, "late", 110, "rename", covered_from=130)
    log.table(5, "never", 50, covered_from=NEVER)
    with pytest.raises(Refused, match=r"shop\.late \(captured after 130\)"):
        log.plan()
    with pytest.raises(Refused, match="never captured"):
        log.plan(filters=("shop.never",))
    assert log.plan(end_ts=120).without == (4, 5)
    assert 4 in [table.table_id for table in log.plan(start_ts=130).tables]
    left = log.plan(leave_uncovered=True)
    assert (left.without, len(left.notes)) == ((4, 5), 1)


def test_a_table_that_was_renamed_since_is_not_in_what_it_continues_from(log: Log) -> None:
    log.table(2, "orders2", 250, "rename", covered_from=4)
    wanted = {"start_ts": 200, "filters": ("shop.orders*",), "base": (200, ("shop.orders*",))}
    with pytest.raises(Refused, match=r"shop\.items is shop\.orders2 by now"):
        log.plan(whole_from=0, **wanted)
    assert log.plan(whole_from=0, end_ts=240, **wanted).only == (1,)
    log.cut(200)  # where the log begins now, a restore starts without --startts
    with pytest.raises(Refused, match=r"shop\.items is shop\.orders2 by now"):
        log.plan(whole_from=0, **wanted | {"start_ts": None})


def test_a_table_that_came_back_is_there_with_all_its_rows(log: Log) -> None:
    log.table(1, "orders", 50, "drop", covered_from=4)
    log.table(3, "orders", 50, "truncate", replaces=1)
    log.table(1, "orders_back", 150, covered_from=4)
    assert log.plan(end_ts=140).without == (1,)
    last = log.plan()
    assert ([table.table_id for table in last.tables], last.without) == ([1, 2, 3], ())


def test_what_was_made_while_a_table_was_dropped_does_not_hold_it(log: Log) -> None:
    log.table(1, "orders", 50, "drop", covered_from=4)
    log.table(1, "orders", 150, covered_from=4)
    while_gone = log.backup(None, 100, "full")
    for held in ((), ("shop.*",)):
        with pytest.raises(Refused, match=r"shop\.orders was dropped"):
            log.plan(start_ts=100, filters=held, base=(100, held), whole_from=0)
    assert log.plan(start_ts=100).only is None  # what was committed since, upon nothing
    plan = log.plan(on_full=True)
    assert (plan.full, plan.start_ts) == (None, 0)
    others = log.plan(on_full=True, filters=("!shop.orders",)).full
    assert others.backup_id == while_gone
    log.cut(90)
    with pytest.raises(Refused, match=r"lacks shop\.orders, which was dropped"):
        log.plan(on_full=True)


def test_a_table_that_was_written_to_before_it_had_a_name(log: Log) -> None:
    log.file(backup_id(1), 7, "write", 10, 90)
    log.table(7, "late", 150)
    with pytest.raises(Refused, match=r"shop\.late had no name"):
        log.plan(start_ts=100, filters=("shop.*",), base=(100, ("shop.*",)), whole_from=0)
    assert log.plan(start_ts=100, base=(100, ()), whole_from=0).changed == (7,)
    assert 7 in [table.table_id for table in log.plan(filters=("shop.*",)).tables]
    assert "1 tables without a name" in log.plan(end_ts=100, filters=("shop.*",)).notes[0]
    assert not log.plan(end_ts=100).notes


def test_what_becomes_of_other_tables_is_no_change(log: Log) -> None:
    log.table(2, "items2", 250, "rename", covered_from=4)
    assert log.plan(start_ts=200, filters=("shop.orders",)).changed == ()
    assert log.plan(start_ts=200, filters=("*.items*",)).changed == (2,)
    assert log.plan(start_ts=200, filters=("*.items", "*.orders")).changed == (2,)


def test_the_newest_full_that_is_whole(log: Log) -> None:
    first, second = log.backup(None, 120, "full"), log.backup(None, 220, "full")
    torn = log.file(second, 0, "write", 0, 0)
    log.checked(second, torn, "damaged")
    assert (log.plan(on_full=True, end_ts=219).full or ASKED).backup_id == first  # type: ignore[union-attr]
    plan = log.plan(on_full=True, end_ts=230)
    assert (plan.full.backup_id, plan.start_ts) == (second, 220)  # the file is none of its table
    exact = log.plan(on_full=True, end_ts=120)
    assert (exact.full and exact.full.end_ts, exact.start_ts, exact.end_ts) == (120, 120, 120)
    early = log.plan(on_full=True, end_ts=110)
    assert (early.full, early.start_ts) == (None, 0)


def test_a_full_with_a_damaged_file_of_its_own_is_passed_over(log: Log) -> None:
    first, second = log.backup(None, 120, "full"), log.backup(None, 220, "full")
    torn = log.file(second, 0, "write", 0, 0)
    files: Any = log.made._rows["files"]
    files[-1] = replace(files[-1], format="delta")
    log.checked(second, torn, "damaged")
    plan = log.plan(on_full=True, end_ts=230)
    assert (plan.full and plan.full.backup_id, plan.start_ts) == (first, 120)


def test_a_point_before_every_full_that_the_log_does_not_reach(log: Log) -> None:
    log.cut(150)
    log.backup(None, 200, "full")
    with pytest.raises(Refused, match="no undamaged full before it"):
        log.plan(on_full=True, end_ts=180)


def test_gaps_and_damage_block_a_restore(log: Log) -> None:
    span = {"from_position": 3, "to_position": 9, "from_ts": 100, "to_ts": 200}
    log.made.add(filled(Gap, backup_id=backup_id(2), source="shop", scope="feed", reason="purged", **span))
    plan = log.plan()
    with pytest.raises(Refused, match="offsets from 3 to 9"):
        require_restorable(plan, allow_gaps=False)
    require_restorable(plan, allow_gaps=True)
    assert not log.plan(start_ts=200).gaps
    # A full that was made all the same passes it on.
    over = log.backup(None, 210, "full", note=gap_note(plan))
    upon = log.plan(on_full=True)
    assert (upon.full and upon.full.backup_id, upon.start_ts) == (over, 210)
    with pytest.raises(Refused, match=f"full {over} was made over a gap: topic feed, .* offsets from 3 to 9"):
        require_restorable(upon, allow_gaps=False)
    require_restorable(upon, allow_gaps=True)
    path = log.file(backup_id(1), 1, "write", 20, 30)
    log.checked(backup_id(1), path, "missing")
    with pytest.raises(Refused, match="was missing"):
        require_restorable(log.plan(), allow_gaps=True)
    require_restorable(log.plan(start_ts=200), allow_gaps=False)


def test_the_millisecond_in_which_a_log_ends_can_be_asked_for(tmp_path: Path) -> None:
    assert (last_ts(5, "ms"), last_ts(5, "tso")) == (5, (6 << 18) - 1)
    log = Log(tmp_path)
    end_ts = (9 << 18) + 5
    log.backup(0, end_ts, ts_domain="tso")
    plan = log.plan(to_ms=9)
    assert (plan.end_ts, len(plan.notes)) == (end_ts, 1)
    assert log.plan(to_ms=8).end_ts == (9 << 18) - 1
    with pytest.raises(Refused, match="does not cover"):
        log.plan(to_ms=10)
