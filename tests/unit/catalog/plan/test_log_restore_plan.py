"""The plan of a restore of a change feed's log: what it reads, and what blocks it."""

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

REQUEST = LogRestoreRequest(destination="", name="shop")


class Log:
    """Adds the rows of a log task to a catalog."""

    def __init__(self, folder: Path) -> None:
        self.repository = MadeBackups(folder)
        self.number = 0

    def backup(self, start_ts: int | None, end_ts: int, kind: Any = "log", **changes: Any) -> str:
        self.number += 1
        full = kind == "full"
        columns = {
            "source": "shop", "source_kind": "changes", "kind": kind, "level": 0 if full else 1,
            "destination": self.repository.destination, "start_ts": start_ts, "end_ts": end_ts,
        }  # fmt: skip
        if not full:
            previous = None if self.number == 1 else self.number - 1
            columns |= {"base": backup_id(1), "parent_place": previous}
        row = backup_row(self.number, **columns | changes)
        self.repository.add(row)
        return row.backup_id

    def file(self, backup: str, table: int, cf: str, low: int, high: int, begin: int | None = None) -> str:
        path = f"shop/log/{backup}/{table}-{cf}-{low}"
        row = file_row(
            1, destination=self.repository.destination, path=path, backup_id=backup, source="shop",
            scope=str(table), epoch="-", region="1", format="log-arrow-1", bytes=10, raw_bytes=20, entries=3,
            min_ts=low, max_ts=high, min_begin_ts=begin, end_position=1, start_key="61", end_key="62", cf=cf,
            op="put",
        )  # fmt: skip
        self.repository.add(row)
        return path

    def add_check(self, backup: str, path: str, outcome: str) -> None:
        """Record the outcome of a check of a backup's file."""
        columns = {"backup_id": backup, "destination": self.repository.destination, "path": path}
        self.repository.add(filled(Check, at=1, mode="hash", outcome=outcome, **columns))

    def table(self, table: int, name: str, from_ts: int, action: Any = "create", **changes: Any) -> None:
        columns = {"source": "shop", "table_id": table, "db": "shop", "name": name, "from_ts": from_ts}
        columns |= {"backup_id": backup_id(1), "action": action, "covered_from": from_ts - 1}
        self.repository.add(filled(LogTable, **columns | changes))

    def truncate(self, ts: int) -> None:
        """Truncate the log."""
        partition = {"scope": "-", "epoch": "-", "region": "-"}
        self.repository.add(filled(Floor, source="shop", low_position=ts, **partition))

    def plan(self, **changes: Any) -> LogRestorePlan:
        options = {
            name: changes.pop(name) for name in ("whole_from", "base", "leave_uncovered") if name in changes
        }
        return plan_restore(replace(REQUEST, **changes), self.repository.planner(), **options)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log of three flushes that cover (0, 300], with the tables 1 (orders) and 2 (items)."""
    task_log = Log(tmp_path)
    for number in range(3):
        backup = task_log.backup(100 * number, 100 * number + 100)
        task_log.file(backup, 1, "write", 100 * number + 10, 100 * number + 90, 100 * number + 5)
        task_log.file(backup, 2, "write", 100 * number + 10, 100 * number + 90)
        task_log.file(backup, 1, "default", 100 * number + 5, 100 * number + 80)
    task_log.table(1, "orders", 5)
    task_log.table(2, "items", 5)
    return task_log


def test_a_restore_without_bounds_reads_the_whole_log(log: Log) -> None:
    plan = log.plan()
    assert (plan.start_ts, plan.end_ts, plan.full) == (0, 300, None)
    assert (plan.writes.files, plan.values.files) == (6, 3)
    assert [(table.table_id, table.name) for table in plan.tables] == [(1, "orders"), (2, "items")]
    assert (plan.begin_ts, plan.raw_bytes, plan.only) == (5, 180, None)


def test_a_span_reads_the_files_that_it_needs(log: Log) -> None:
    plan = log.plan(start_ts=150, end_ts=190, filters=("shop.orders",))
    assert (plan.writes.files, plan.values.files, plan.only) == (1, 1, (1,))


@pytest.mark.parametrize(("start", "end"), [(0, 301), (300, 400), (None, 301)])
def test_an_uncovered_span_is_refused(log: Log, start: int | None, end: int) -> None:
    with pytest.raises(Refused, match=r"after 0 .* up to 300"):
        log.plan(start_ts=start, end_ts=end)


def test_a_log_is_not_covered_across_a_gap_or_where_it_was_truncated(log: Log) -> None:
    log.backup(400, 500)
    with pytest.raises(Refused, match=r"up to 300 .*; after 400"):
        log.plan(start_ts=200, end_ts=450)
    assert log.plan(end_ts=450).start_ts == 400
    log.truncate(150)
    assert log.plan(end_ts=300).start_ts == 150
    with pytest.raises(Refused, match="after 150"):
        log.plan(start_ts=100, end_ts=300)


@pytest.mark.parametrize(
    ("changes", "error", "complaint"),
    [
        ({"start_ts": 200, "end_ts": 200}, UsageProblem, "Nothing lies between"),
        ({"name": "other"}, NotFound, "no log of other"),
        ({"filters": ("shop.none",)}, NotFound, "No table"),
        ({"end_ts": 4}, Refused, "starts at 5 "),
    ],
)
def test_an_empty_restore_is_refused(log: Log, changes: dict[str, Any], error: Any, complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        log.plan(**changes)


def test_tables_have_their_names_at_the_end_of_the_span(log: Log) -> None:
    assert len(log.plan(end_ts=5).tables) == 2
    log.table(1, "old", 120, "rename", covered_from=4)
    log.table(3, "orders", 250, "truncate", replaces=2)
    assert log.plan(end_ts=119, filters=("*.orders",)).only == (1,)
    assert log.plan(end_ts=120, filters=("!*.orders",)).only == (1, 2)
    last = log.plan(end_ts=250)
    assert (last.without, last.changed) == ((2,), (1, 2))
    assert [(table.table_id, table.name) for table in last.tables] == [(1, "old"), (3, "orders")]


def test_a_table_that_entered_the_filter_later_is_refused(log: Log) -> None:
    log.table(4, "elsewhere", 50, covered_from=NEVER)
    log.table(4, "late", 110, "rename", covered_from=130)
    log.table(5, "never", 50, covered_from=NEVER)
    with pytest.raises(Refused, match=r"shop\.late \(captured after 130\)"):
        log.plan()
    with pytest.raises(Refused, match="never captured"):
        log.plan(filters=("shop.never",))
    assert log.plan(end_ts=120).without == (4, 5)
    assert 4 in [table.table_id for table in log.plan(start_ts=130).tables]
    plan = log.plan(leave_uncovered=True)
    assert (plan.without, len(plan.notes)) == ((4, 5), 1)


def test_a_table_that_was_renamed_since_the_base_is_refused(log: Log) -> None:
    log.table(2, "orders2", 250, "rename", covered_from=4)
    request = {"start_ts": 200, "filters": ("shop.orders*",), "base": (200, ("shop.orders*",))}
    with pytest.raises(Refused, match=r"shop\.items is shop\.orders2 by now"):
        log.plan(whole_from=0, **request)
    assert log.plan(whole_from=0, end_ts=240, **request).only == (1,)
    log.truncate(200)  # the log begins at 200 now, so a restore needs no --startts
    with pytest.raises(Refused, match=r"shop\.items is shop\.orders2 by now"):
        log.plan(whole_from=0, **request | {"start_ts": None})


def test_a_recovered_table_has_all_its_rows(log: Log) -> None:
    log.table(1, "orders", 50, "drop", covered_from=4)
    log.table(3, "orders", 50, "truncate", replaces=1)
    log.table(1, "orders_back", 150, covered_from=4)
    assert log.plan(end_ts=140).without == (1,)
    last = log.plan()
    assert ([table.table_id for table in last.tables], last.without) == ([1, 2, 3], ())


def test_a_base_lacks_tables_that_were_dropped_when_it_was_made(log: Log) -> None:
    log.table(1, "orders", 50, "drop", covered_from=4)
    log.table(1, "orders", 150, covered_from=4)
    full_id = log.backup(None, 100, "full")
    for filters in ((), ("shop.*",)):
        with pytest.raises(Refused, match=r"shop\.orders was dropped"):
            log.plan(start_ts=100, filters=filters, base=(100, filters), whole_from=0)
    assert log.plan(start_ts=100).only is None  # only what was committed since, without a base
    plan = log.plan(on_full=True)
    assert (plan.full, plan.start_ts) == (None, 0)
    full = log.plan(on_full=True, filters=("!shop.orders",)).full
    assert full.backup_id == full_id
    log.truncate(90)
    with pytest.raises(Refused, match=r"lacks shop\.orders, which was dropped"):
        log.plan(on_full=True)


def test_a_table_that_was_written_before_it_had_a_name(log: Log) -> None:
    log.file(backup_id(1), 7, "write", 10, 90)
    log.table(7, "late", 150)
    with pytest.raises(Refused, match=r"shop\.late had no name"):
        log.plan(start_ts=100, filters=("shop.*",), base=(100, ("shop.*",)), whole_from=0)
    assert log.plan(start_ts=100, base=(100, ()), whole_from=0).changed == (7,)
    assert 7 in [table.table_id for table in log.plan(filters=("shop.*",)).tables]
    assert "1 tables without a name" in log.plan(end_ts=100, filters=("shop.*",)).notes[0]
    assert not log.plan(end_ts=100).notes


def test_changes_of_other_tables_do_not_count(log: Log) -> None:
    log.table(2, "items2", 250, "rename", covered_from=4)
    assert log.plan(start_ts=200, filters=("shop.orders",)).changed == ()
    assert log.plan(start_ts=200, filters=("*.items*",)).changed == (2,)
    assert log.plan(start_ts=200, filters=("*.items", "*.orders")).changed == (2,)


def test_the_newest_undamaged_full_is_used(log: Log) -> None:
    first, second = log.backup(None, 120, "full"), log.backup(None, 220, "full")
    damaged_path = log.file(second, 0, "write", 0, 0)
    log.add_check(second, damaged_path, "damaged")
    assert (log.plan(on_full=True, end_ts=219).full or REQUEST).backup_id == first  # type: ignore[union-attr]
    plan = log.plan(on_full=True, end_ts=230)
    # The damaged file is not part of the full's table.
    assert (plan.full.backup_id, plan.start_ts) == (second, 220)
    exact = log.plan(on_full=True, end_ts=120)
    assert (exact.full and exact.full.end_ts, exact.start_ts, exact.end_ts) == (120, 120, 120)
    early = log.plan(on_full=True, end_ts=110)
    assert (early.full, early.start_ts) == (None, 0)


def test_a_full_with_a_damaged_file_of_its_table_is_skipped(log: Log) -> None:
    first, second = log.backup(None, 120, "full"), log.backup(None, 220, "full")
    damaged_path = log.file(second, 0, "write", 0, 0)
    files: Any = log.repository._rows["files"]
    files[-1] = replace(files[-1], format="delta")
    log.add_check(second, damaged_path, "damaged")
    plan = log.plan(on_full=True, end_ts=230)
    assert (plan.full and plan.full.backup_id, plan.start_ts) == (first, 120)


def test_a_point_before_every_full_needs_the_log_from_its_start(log: Log) -> None:
    log.truncate(150)
    log.backup(None, 200, "full")
    with pytest.raises(Refused, match="no undamaged full before it"):
        log.plan(on_full=True, end_ts=180)


def test_gaps_and_damage_block_a_restore(log: Log) -> None:
    span = {"from_position": 3, "to_position": 9, "from_ts": 100, "to_ts": 200}
    log.repository.add(
        filled(Gap, backup_id=backup_id(2), source="shop", scope="feed", reason="purged", **span)
    )
    plan = log.plan()
    with pytest.raises(Refused, match="offsets from 3 to 9"):
        require_restorable(plan, allow_gaps=False)
    require_restorable(plan, allow_gaps=True)
    assert not log.plan(start_ts=200).gaps
    # A full that was made over the gap passes it on to its restores.
    full_id = log.backup(None, 210, "full", note=gap_note(plan))
    full_plan = log.plan(on_full=True)
    assert (full_plan.full and full_plan.full.backup_id, full_plan.start_ts) == (full_id, 210)
    with pytest.raises(
        Refused, match=f"full {full_id} was made over a gap: topic feed, .* offsets from 3 to 9"
    ):
        require_restorable(full_plan, allow_gaps=False)
    require_restorable(full_plan, allow_gaps=True)
    path = log.file(backup_id(1), 1, "write", 20, 30)
    log.add_check(backup_id(1), path, "missing")
    with pytest.raises(Refused, match="was missing"):
        require_restorable(log.plan(), allow_gaps=True)
    require_restorable(log.plan(start_ts=200), allow_gaps=False)


def test_the_millisecond_in_which_a_log_ends_can_be_restored(tmp_path: Path) -> None:
    assert (last_ts(5, "ms"), last_ts(5, "tso")) == (5, (6 << 18) - 1)
    log = Log(tmp_path)
    end_ts = (9 << 18) + 5
    log.backup(0, end_ts, ts_domain="tso")
    plan = log.plan(to_ms=9)
    assert (plan.end_ts, len(plan.notes)) == (end_ts, 1)
    assert log.plan(to_ms=8).end_ts == (9 << 18) - 1
    with pytest.raises(Refused, match="does not cover"):
        log.plan(to_ms=10)
