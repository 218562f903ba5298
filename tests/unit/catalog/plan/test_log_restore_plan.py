"""What a restore of a change feed's log would read, and what stands against it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.made_backups import MadeBackups

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.logs.restore import (
    NEVER,
    LogRestorePlan,
    LogRestoreRequest,
    last_ts,
    note_of,
    plan_restore,
    require_restorable,
)
from lakebackup.rows.backups import Backup, DataFile, Floor, Gap
from lakebackup.rows.logs import LogTable
from lakebackup.rows.upkeep import Check

if TYPE_CHECKING:
    from pathlib import Path

ASKED = LogRestoreRequest(destination="", name="shop")


class Log:
    """Rows of a log task's catalog: a flush each 100."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeBackups(folder)
        self.number = 0

    def backup(self, start_ts: int | None, end_ts: int, kind: Any = "log", note: str | None = None) -> str:
        return self.in_unit("ms", start_ts, end_ts, kind, note)

    def in_unit(
        self, domain: str, start_ts: int | None, end_ts: int, kind: Any = "log", note: str | None = None
    ) -> str:
        self.number += 1
        name = backup_id(self.number)
        full = kind == "full"
        row = Backup(
            backup_id=name, number=self.number, source="shop", source_kind="changes",
            destination=self.made.destination, kind=kind, level=0 if full else 1,
            parent=None, base=name if full else backup_id(1), chain_position=0, place=self.number,
            parent_place=None if full or self.number == 1 else self.number - 1, ts_domain=domain,
            start_ts=start_ts, end_ts=end_ts, started_at=0, finished_at=0, files=0, bytes=0, entries=0,
            digest="", isolation="", codec="zstd", created_by="", tool="",
            note=note,
        )  # fmt: skip
        self.made.add(row)
        return name

    def file(self, backup: str, table: int, cf: str, low: int, high: int, begin: int | None = None) -> str:
        path = f"shop/log/{backup}/{table}-{cf}-{low}"
        self.made.add(
            DataFile(
                destination=self.made.destination,
                path=path,
                backup_id=backup,
                added_in=1,
                source="shop",
                scope=str(table),
                epoch="-",
                region="1",
                format="log-arrow-1",
                codec="zstd",
                bytes=10,
                raw_bytes=20,
                sha256="00",
                entries=3,
                min_ts=low,
                max_ts=high,
                min_begin_ts=begin,
                start_position=0,
                end_position=1,
                start_key="61",
                end_key="62",
                cf=cf,
                op="put",
            )
        )
        return path

    def checked(self, backup: str, path: str, outcome: Any) -> None:
        """Record what a check found of a file of a backup."""
        self.made.add(
            Check(
                check_id="c",
                at=1,
                backup_id=backup,
                destination=self.made.destination,
                path=path,
                mode="hash",
                outcome=outcome,
            )
        )

    def table(self, table: int, name: str, from_ts: int, action: Any = "create", **more: Any) -> None:
        row = LogTable(
            backup_id=backup_id(1), source="shop", table_id=table, db="shop", name=name, from_ts=from_ts,
            action=action, covered_from=from_ts - 1,
        )  # fmt: skip
        self.made.add(replace(row, **more))

    def plan(self, **asked: Any) -> LogRestorePlan:
        more = {name: asked.pop(name) for name in ("whole_from", "held", "leave_uncovered") if name in asked}
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
    assert (plan.start_ts, plan.end_ts, plan.full, plan.writes.files, plan.values.files) == (
        0,
        300,
        None,
        6,
        3,
    )
    assert [(table.table_id, table.name) for table in plan.tables] == [(1, "orders"), (2, "items")]
    assert (plan.begin_ts, plan.raw_bytes, plan.only) == (5, 180, None)


def test_a_span_reads_the_files_that_it_needs(log: Log) -> None:
    plan = log.plan(start_ts=150, end_ts=190, filters=("shop.orders",))
    assert (plan.writes.files, plan.values.files, plan.only) == (1, 1, (1,))


@pytest.mark.parametrize(("start", "end"), [(0, 301), (300, 400), (None, 301)])
def test_what_is_not_covered_is_refused(log: Log, start: int | None, end: int) -> None:
    with pytest.raises(Refused, match=r"after 0 .* up to 300"):
        log.plan(start_ts=start, end_ts=end)


def test_a_hole_in_the_log_parts_it(log: Log) -> None:
    log.backup(400, 500)
    with pytest.raises(Refused, match=r"up to 300 .*; after 400"):
        log.plan(start_ts=200, end_ts=450)
    assert log.plan(end_ts=450).start_ts == 400


def test_what_was_truncated_is_not_covered(log: Log) -> None:
    log.made.add(
        Floor(
            prune_id="p", at=0, source="shop", scope="-", epoch="-", region="-", low_position=150, reason=""
        )
    )
    assert log.plan().start_ts == 150
    with pytest.raises(Refused, match="after 150"):
        log.plan(start_ts=100)


def test_nothing_between_is_a_mistake(log: Log) -> None:
    with pytest.raises(UsageProblem, match="Nothing lies between"):
        log.plan(start_ts=200, end_ts=200)


def test_no_log_and_no_table(log: Log) -> None:
    with pytest.raises(NotFound, match="no log of other"):
        log.plan(name="other")
    with pytest.raises(NotFound, match="No table"):
        log.plan(filters=("shop.none",))


def test_names_are_those_at_the_end(log: Log) -> None:
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


def test_a_table_that_was_renamed_since_is_not_in_what_it_goes_on_from(log: Log) -> None:
    log.table(2, "orders2", 250, "rename", covered_from=4)
    wanted = {"start_ts": 200, "filters": ("shop.orders*",), "held": ("shop.orders*",)}
    with pytest.raises(Refused, match=r"shop\.items is shop\.orders2 by now"):
        log.plan(whole_from=0, **wanted)
    assert log.plan(whole_from=0, end_ts=240, **wanted).only == (1,)


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
            log.plan(start_ts=100, filters=held, held=held, whole_from=0)
    assert log.plan(start_ts=100).only is None  # what was committed since, upon nothing
    plan = log.plan(on_full=True)
    assert (plan.full, plan.start_ts) == (None, 0)
    others = log.plan(on_full=True, filters=("!shop.orders",)).full
    assert others is not None
    assert others.backup_id == while_gone
    log.made.add(
        Floor(prune_id="p", at=0, source="shop", scope="-", epoch="-", region="-", low_position=90, reason="")
    )
    with pytest.raises(Refused, match=r"made while shop\.orders was dropped"):
        log.plan(on_full=True)


def test_a_table_that_was_written_to_before_it_had_a_name(log: Log) -> None:
    log.file(backup_id(1), 7, "write", 10, 90)
    log.table(7, "late", 150)
    with pytest.raises(Refused, match=r"shop\.late had no name"):
        log.plan(start_ts=100, filters=("shop.*",), held=("shop.*",), whole_from=0)
    assert log.plan(start_ts=100, held=(), whole_from=0).changed == (7,)
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
    assert plan.full is not None
    assert (plan.full.backup_id, plan.start_ts) == (second, 220)  # the file is none of its table
    exact = log.plan(on_full=True, end_ts=120)
    assert (exact.full and exact.full.end_ts, exact.start_ts, exact.end_ts) == (120, 120, 120)
    early = log.plan(on_full=True, end_ts=110)
    assert (early.full, early.start_ts) == (None, 0)


def test_a_full_with_a_damaged_file_is_passed_over(log: Log) -> None:
    first, second = log.backup(None, 120, "full"), log.backup(None, 220, "full")
    torn = log.file(second, 0, "write", 0, 0)
    files: Any = log.made._rows["files"]
    files[-1] = replace(files[-1], format="delta")  # of the full's own table
    log.checked(second, torn, "damaged")
    plan = log.plan(on_full=True, end_ts=230)
    assert (plan.full and plan.full.backup_id, plan.start_ts) == (first, 120)


def test_a_point_before_every_full_that_the_log_does_not_reach(log: Log) -> None:
    log.made.add(
        Floor(
            prune_id="p", at=0, source="shop", scope="-", epoch="-", region="-", low_position=150, reason=""
        )
    )
    log.backup(None, 200, "full")
    with pytest.raises(Refused, match="no full before it"):
        log.plan(on_full=True, end_ts=180)


def test_gaps_and_damage_stand_in_the_way(log: Log) -> None:
    log.made.add(
        Gap(
            backup_id=backup_id(2),
            source="shop",
            scope="feed",
            epoch="e",
            region="0",
            from_position=3,
            to_position=9,
            reason="purged",
            from_ts=100,
            to_ts=200,
            bridged=False,
        )
    )
    plan = log.plan()
    with pytest.raises(Refused, match="offsets from 3 to 9"):
        require_restorable(plan, allow_gaps=False)
    require_restorable(plan, allow_gaps=True)
    assert not log.plan(start_ts=200).gaps
    # A full that was made all the same passes it on.
    over = log.backup(None, 210, "full", note=note_of(plan))
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


def test_an_instant_of_a_tso_is_all_of_it() -> None:
    assert last_ts(5, "ms") == 5
    assert last_ts(5, "tso") == (6 << 18) - 1


def test_the_millisecond_in_which_a_log_ends_can_be_asked_for(tmp_path: Path) -> None:
    log = Log(tmp_path)
    end_ts = (9 << 18) + 5
    log.in_unit("tso", 0, end_ts)
    plan = log.plan(to_ms=9)
    assert (plan.end_ts, len(plan.notes)) == (end_ts, 1)
    assert log.plan(to_ms=8).end_ts == (9 << 18) - 1
    with pytest.raises(Refused, match="does not cover"):
        log.plan(to_ms=10)


def test_times_before_anything_is_known_are_refused(log: Log) -> None:
    with pytest.raises(Refused, match="before 5 "):
        log.plan(end_ts=4)
    assert len(log.plan(end_ts=5).tables) == 2
