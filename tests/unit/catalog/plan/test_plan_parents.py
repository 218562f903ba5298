"""The choice of a backup's parent, and the backups that a restore then needs. The rows are made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.catalogs import EPOCH
from tests.support.made_backups import MadeBackups
from tests.support.rows import backup_row, filled

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.parents import Choice, Mode, check_asked, choose, falls_short, region_ends
from lakebackup.plan.partitions import RegionState
from lakebackup.plan.topics.backup import Covered
from lakebackup.rows.backups import Backup, Scope
from lakebackup.rows.base import State


class PlannedBackups:
    """Backups of one source. The plan chooses the parent of each, and the tests give them names."""

    def __init__(self, folder: Path) -> None:
        self.repository = MadeBackups(folder)
        self.names: dict[str, str] = {}

    def choice(self, mode: Mode = "auto", level: int | None = None, **options: Any) -> Choice:
        if "parent" in options:
            options["parent"] = next(k for k, v in self.names.items() if v == options["parent"])
        return choose(self.repository.planner(), "prod", mode=mode, level=level, **options)

    def back_up(
        self,
        name: str,
        mode: Mode = "auto",
        level: int | None = None,
        state: State = "complete",
        **options: Any,
    ) -> Backup:
        choice = self.choice(mode, level, **options)
        parent = None if mode == "full" else choice.parent
        self.repository.number += 1
        columns = {"kind": choice.increment, "level": choice.level, "branch": choice.branch} if parent else {}
        common_columns = {"destination": self.repository.destination, "state": state}
        # `parent` is a row that has the fields which a child takes from its parent.
        backup = backup_row(self.repository.number, cast("Any", parent), **common_columns | columns)
        self.repository.add(backup, filled(Scope, backup_id=backup.backup_id, regions=1, settings="{}"))
        self.names[backup.backup_id] = name
        return backup

    def needs(self, name: str) -> list[str]:
        """The names of the backups that a restore of one reads, oldest first."""
        backup_id = next(k for k, v in self.names.items() if v == name)
        rows = self.repository.planner().select(
            "SELECT b.backup_id FROM restore_points AS t JOIN backups AS b ON b.base = t.base "
            "AND b.link <= t.link AND t.link < b.unlinked AND b.state = 'complete' "
            f"WHERE t.backup_id = '{backup_id}' ORDER BY b.link"
        )
        return [self.names[row] for row in rows.read_all()["backup_id"].to_pylist()]

    def parent(self, backup: Backup) -> str | None:
        return self.names[backup.parent] if backup.parent else None


@pytest.fixture
def backups(tmp_path: Path) -> PlannedBackups:
    return PlannedBackups(tmp_path)


@pytest.mark.parametrize(
    ("mode", "kind", "needed", "needed_late"),
    [
        ("incr-diff", "differential", "sun, mon, tue", "sun, mon, tue, tue 01, tue 02"),
        ("incr-accu", "cumulative", "sun, tue", "sun, tue, tue 02"),
    ],
)
def test_backups_of_a_week_on_two_levels(
    backups: PlannedBackups, mode: Mode, kind: str, needed: str, needed_late: str
) -> None:
    backups.back_up("sun", "full")
    parent = "sun"
    for day in ("mon", "tue"):
        backup = backups.back_up(day, mode, 1)
        assert (backup.kind, backup.level, backups.parent(backup)) == (kind, 1, parent)
        parent, hour = (day if kind == "differential" else "sun"), day
        for clock in ("01", "02"):
            backup = backups.back_up(f"{day} {clock}", mode, 2)
            assert (backup.level, backups.parent(backup)) == (2, hour)
            hour = f"{day} {clock}" if kind == "differential" else day
    assert ", ".join(backups.needs("tue")) == needed
    assert ", ".join(backups.needs("tue 02")) == needed_late


def test_a_cumulative_backup_replaces_earlier_differentials(backups: PlannedBackups) -> None:
    backups.back_up("sun", "full")
    for name in ("mon", "tue", "wed"):
        backups.back_up(name, "incr-diff")
    backups.back_up("thu", "incr-accu")
    backups.back_up("fri", "incr-diff")
    assert backups.needs("fri") == ["sun", "thu", "fri"]
    assert backups.needs("wed") == ["sun", "mon", "tue", "wed"]


def test_the_first_backup_is_a_full_and_levels_may_be_skipped(backups: PlannedBackups) -> None:
    first = backups.back_up("first", "incr-accu", 3)
    assert (first.kind, first.level) == ("full", 0)
    assert (
        "no backup of prod yet"
        in PlannedBackups.choice(PlannedBackups(backups.repository.folder / "x"), "incr-diff").notes[0]
    )
    deep = backups.back_up("deep", "incr-diff", 4)
    assert (deep.level, backups.parent(deep)) == (4, "first")
    auto = backups.back_up("auto")
    assert (auto.kind, auto.level, backups.parent(auto)) == ("differential", 1, "first")
    assert backups.needs("auto") == ["first", "auto"]


def test_a_batch_continues_the_newest_backup_of_any_level(backups: PlannedBackups) -> None:
    backups.back_up("full", "full")
    backups.back_up("deep", "incr-diff", 3)
    batch = backups.back_up("batch", log=True)
    assert (batch.kind, batch.level, backups.parent(batch)) == ("log", 3, "deep")


def test_a_newer_full_wins_until_an_older_one_is_named(backups: PlannedBackups) -> None:
    backups.back_up("a", "full")
    backups.back_up("b", "full")
    assert backups.parent(backups.back_up("b1")) == "b"
    child = backups.back_up("a1", parent="a")
    assert (backups.parent(child), child.branch) == ("a", 0)
    # The child is the newest backup from then on.
    assert backups.parent(backups.back_up("a2")) == "a1"
    assert backups.needs("a2") == ["a", "a1", "a2"]
    assert backups.needs("b1") == ["b", "b1"]


def test_continuing_from_the_middle_of_a_chain_starts_a_branch(backups: PlannedBackups) -> None:
    for name, mode in (("full", "full"), ("one", "auto"), ("two", "auto")):
        backups.back_up(name, mode)  # type: ignore[arg-type]
    side = backups.back_up("side", parent="one")
    assert (side.branch, backups.parent(side)) == (1, "one")
    assert backups.back_up("on").branch == 1
    # A cumulative backup of level 1 needs only the full, which precedes the branch. It belongs to the branch.
    wide = backups.back_up("wide", "incr-accu")
    assert (backups.parent(wide), wide.branch) == ("full", 1)
    with pytest.raises(Refused, match="in its place"):
        backups.choice(parent="two")
    assert backups.needs("on") == ["full", "one", "side", "on"]
    assert backups.needs("two") == ["full", "one", "two"]


def test_unusable_parents_are_skipped_with_a_warning(backups: PlannedBackups) -> None:
    backups.back_up("full", "full")
    good = backups.back_up("good")
    lost = backups.back_up("lost", state="out_of_sync")
    choice = backups.choice("incr-diff")
    assert choice.parent
    assert choice.parent.backup_id == good.backup_id
    (warning,) = choice.warnings
    assert lost.backup_id in warning
    assert "cut back" in warning
    assert backups.choice(log=True).warnings == choice.warnings


def test_without_a_usable_parent_only_a_full_is_possible(backups: PlannedBackups) -> None:
    lost = backups.back_up("full", "full", state="unconfirmed")
    modes: tuple[Mode, ...] = ("incr-diff", "incr-accu")
    for mode in modes:
        with pytest.raises(Refused, match=f"{lost.backup_id}.*marker") as refused:
            backups.choice(mode)
        assert "--mode full" in (refused.value.hint or "")
    choice = backups.choice()
    assert choice.parent is None
    assert lost.backup_id in choice.warnings[0]
    assert backups.choice("full").warnings == ()


def test_a_chain_without_its_full_cannot_be_continued(backups: PlannedBackups) -> None:
    backups.back_up("full", "full", state="deleted")
    assert backups.choice("incr-diff").parent is None  # and nothing else is left
    other_backups = PlannedBackups(backups.repository.folder / "other")
    other_backups.back_up("full", "full")
    backups.repository.number += 1
    backups.repository.add(
        replace(other_backups.back_up("child"), destination=backups.repository.destination)
    )
    with pytest.raises(Refused, match="a backup that it needs"):
        backups.choice("incr-diff")


def test_an_unsuitable_parent_is_refused(backups: PlannedBackups) -> None:
    backups.back_up("full", "full")
    backups.back_up("deep", "incr-diff", 2)
    lost = backups.back_up("lost", state="out_of_sync")
    with pytest.raises(Refused, match=f"{lost.backup_id} cannot be continued"):
        backups.choice(parent="lost")
    with pytest.raises(UsageProblem, match="of level 2 or above"):
        backups.choice("incr-diff", 1, parent="deep")
    with pytest.raises(UsageProblem, match="of level 3 or above"):
        backups.choice("incr-accu", 2, parent="deep")
    assert backups.choice("incr-accu", parent="deep").level == 3
    with pytest.raises(UsageProblem, match="not of elsewhere"):
        choose(backups.repository.planner(), "elsewhere", parent=lost.backup_id)
    with pytest.raises(NotFound):
        choose(backups.repository.planner(), "prod", parent="1999")


@pytest.mark.parametrize(
    ("mode", "level", "parent"),
    [
        ("full", 1, None),
        ("full", None, "b1"),
        ("auto", 0, None),
        ("incr-diff", 0, None),
        ("incr-accu", -1, None),
    ],
)
def test_contradictory_modes_and_levels_are_refused(
    mode: Mode, level: int | None, parent: str | None
) -> None:
    with pytest.raises(UsageProblem):
        check_asked(mode, level, parent)
    check_asked("full", 0, None)  # level 0 may be named for a full


def region(low: int, epoch: str = EPOCH) -> RegionState:
    return RegionState("orders", epoch, "0", low, 99, 99, 1)


def covered(end: int, in_chain: bool = True) -> Covered:
    return Covered("orders", EPOCH, "0", end, 1, 1, in_chain)


def test_a_parent_falls_short_when_records_after_it_were_deleted() -> None:
    assert not falls_short([region(20)], [covered(20)])
    assert falls_short([region(21)], [covered(20), covered(40, in_chain=False)])
    # A partition or an epoch of the topic that the chain lacks begins where the source's partition begins.
    assert not falls_short([region(21)], [covered(20, in_chain=False)])
    assert not falls_short([region(21, "f" * 32)], [covered(20)])


def test_a_cumulative_backup_with_a_gap_becomes_a_differential(backups: PlannedBackups) -> None:
    backups.back_up("full", "full")
    backups.back_up("one")
    deep = backups.back_up("deep", "incr-diff", 2)
    choice = backups.choice("incr-accu").instead()
    assert choice.parent
    assert choice.parent.backup_id == deep.backup_id
    assert (choice.increment, choice.level) == ("differential", 2)
    assert "has deleted records" in choice.notes[0]
    assert choice.instead() is choice
    with pytest.raises(Refused, match="would have a hole"):
        backups.choice("incr-diff", parent="one").instead()


@pytest.mark.parametrize(("regions", "expected_reads"), [(2, ["b7"]), (3, ["b7", None])])
def test_the_positions_of_all_backups_are_read_only_where_the_last_lacks_a_partition(
    regions: int, expected_reads: list[str | None]
) -> None:
    topic = {"scope": "orders", "epoch": EPOCH, "in_chain": True, "backup_id": "b7"}
    ends = [{**topic, "region": region} for region in "01"]
    reads = []

    class Reader:
        def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
            if name == "region_backups":
                return [{**topic, "regions": regions}]
            reads.append(parameters["backups"])
            return ends

    assert region_ends(cast("Any", Reader()), "prod", "b1", 7) == ends
    assert reads == expected_reads
