"""Which backup the next one stands on, and what a restore then needs: over rows made by hand."""

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


class Taken:
    """Backups of one source, each where the plan puts it; they are called by what a test calls them."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeBackups(folder)
        self.names: dict[str, str] = {}

    def choice(self, mode: Mode = "auto", level: int | None = None, **more: Any) -> Choice:
        if "parent" in more:
            more["parent"] = next(k for k, v in self.names.items() if v == more["parent"])
        return choose(self.made.planner(), "prod", mode=mode, level=level, **more)

    def take(
        self, name: str, mode: Mode = "auto", level: int | None = None, state: State = "complete", **more: Any
    ) -> Backup:
        chosen = self.choice(mode, level, **more)
        parent = None if mode == "full" else chosen.parent
        self.made.number += 1
        made = {"kind": chosen.increment, "level": chosen.level, "branch": chosen.branch} if parent else {}
        place = {"destination": self.made.destination, "state": state}
        # What was chosen is a row with the fields that a child takes from it.
        backup = backup_row(self.made.number, cast("Any", parent), **place | made)
        self.made.add(backup, filled(Scope, backup_id=backup.backup_id, regions=1, settings="{}"))
        self.names[backup.backup_id] = name
        return backup

    def needs(self, name: str) -> list[str]:
        """What a restore of one of them reads, oldest first."""
        wanted = next(k for k, v in self.names.items() if v == name)
        found = self.made.planner().select(
            "SELECT b.backup_id FROM restore_points AS t JOIN backups AS b ON b.base = t.base "
            "AND b.link <= t.link AND t.link < b.unlinked AND b.state = 'complete' "
            f"WHERE t.backup_id = '{wanted}' ORDER BY b.link"
        )
        return [self.names[row] for row in found.read_all()["backup_id"].to_pylist()]

    def parent(self, backup: Backup) -> str | None:
        return self.names[backup.parent] if backup.parent else None


@pytest.fixture
def taken(tmp_path: Path) -> Taken:
    return Taken(tmp_path)


@pytest.mark.parametrize(
    ("mode", "kind", "needed", "needed_late"),
    [
        ("incr-diff", "differential", "sun, mon, tue", "sun, mon, tue, tue 01, tue 02"),
        ("incr-accu", "cumulative", "sun, tue", "sun, tue, tue 02"),
    ],
)
def test_backups_of_a_week_on_two_levels(
    taken: Taken, mode: Mode, kind: str, needed: str, needed_late: str
) -> None:
    taken.take("sun", "full")
    before = "sun"
    for day in ("mon", "tue"):
        made = taken.take(day, mode, 1)
        assert (made.kind, made.level, taken.parent(made)) == (kind, 1, before)
        before, hour = (day if kind == "differential" else "sun"), day
        for clock in ("01", "02"):
            made = taken.take(f"{day} {clock}", mode, 2)
            assert (made.level, taken.parent(made)) == (2, hour)
            hour = f"{day} {clock}" if kind == "differential" else day
    assert ", ".join(taken.needs("tue")) == needed
    assert ", ".join(taken.needs("tue 02")) == needed_late


def test_a_cumulative_backup_stands_in_for_those_before_it(taken: Taken) -> None:
    taken.take("sun", "full")
    for name in ("mon", "tue", "wed"):
        taken.take(name, "incr-diff")
    taken.take("thu", "incr-accu")
    taken.take("fri", "incr-diff")
    assert taken.needs("fri") == ["sun", "thu", "fri"]
    assert taken.needs("wed") == ["sun", "mon", "tue", "wed"]


def test_the_first_is_a_full_and_a_level_may_skip_others(taken: Taken) -> None:
    first = taken.take("first", "incr-accu", 3)
    assert (first.kind, first.level) == ("full", 0)
    assert "no backup of prod yet" in Taken.choice(Taken(taken.made.folder / "x"), "incr-diff").notes[0]
    deep = taken.take("deep", "incr-diff", 4)
    assert (deep.level, taken.parent(deep)) == (4, "first")
    auto = taken.take("auto")
    assert (auto.kind, auto.level, taken.parent(auto)) == ("differential", 1, "first")
    assert taken.needs("auto") == ["first", "auto"]


def test_a_batch_continues_from_the_newest_whatever_its_level(taken: Taken) -> None:
    taken.take("full", "full")
    taken.take("deep", "incr-diff", 3)
    batch = taken.take("batch", log=True)
    assert (batch.kind, batch.level, taken.parent(batch)) == ("log", 3, "deep")


def test_a_newer_full_wins_until_an_older_one_is_named(taken: Taken) -> None:
    taken.take("a", "full")
    taken.take("b", "full")
    assert taken.parent(taken.take("b1")) == "b"
    again = taken.take("a1", parent="a")
    assert (taken.parent(again), again.branch) == ("a", 0)
    # And that is the newest from then on.
    assert taken.parent(taken.take("a2")) == "a1"
    assert taken.needs("a2") == ["a", "a1", "a2"]
    assert taken.needs("b1") == ["b", "b1"]


def test_going_on_from_the_middle_of_a_chain_is_a_branch(taken: Taken) -> None:
    for name, mode in (("full", "full"), ("one", "auto"), ("two", "auto")):
        taken.take(name, mode)  # type: ignore[arg-type]
    side = taken.take("side", parent="one")
    assert (side.branch, taken.parent(side)) == (1, "one")
    assert taken.take("on").branch == 1
    # What a level below one needs is the full, before the branch; its history is that of the branch.
    wide = taken.take("wide", "incr-accu")
    assert (taken.parent(wide), wide.branch) == ("full", 1)
    with pytest.raises(Refused, match="in its place"):
        taken.choice(parent="two")
    assert taken.needs("on") == ["full", "one", "side", "on"]
    assert taken.needs("two") == ["full", "one", "two"]


def test_backups_that_cannot_be_continued_are_passed_over_and_named(taken: Taken) -> None:
    taken.take("full", "full")
    good = taken.take("good")
    lost = taken.take("lost", state="out_of_sync")
    chosen = taken.choice("incr-diff")
    assert chosen.parent
    assert chosen.parent.backup_id == good.backup_id
    (warning,) = chosen.warnings
    assert lost.backup_id in warning
    assert "cut back" in warning
    assert taken.choice(log=True).warnings == chosen.warnings


def test_without_any_that_can_be_continued_only_a_full_is_taken(taken: Taken) -> None:
    lost = taken.take("full", "full", state="unconfirmed")
    asked: tuple[Mode, ...] = ("incr-diff", "incr-accu")
    for mode in asked:
        with pytest.raises(Refused, match=f"{lost.backup_id}.*marker") as told:
            taken.choice(mode)
        assert "--mode full" in (told.value.hint or "")
    chosen = taken.choice()
    assert chosen.parent is None
    assert lost.backup_id in chosen.warnings[0]
    assert taken.choice("full").warnings == ()


def test_a_chain_whose_full_was_deleted_says_so(taken: Taken) -> None:
    taken.take("full", "full", state="deleted")
    assert taken.choice("incr-diff").parent is None  # and nothing else is left
    other = Taken(taken.made.folder / "other")
    other.take("full", "full")
    taken.made.number += 1
    taken.made.add(replace(other.take("child"), destination=taken.made.destination))
    with pytest.raises(Refused, match="a backup that it needs"):
        taken.choice("incr-diff")


def test_a_parent_that_cannot_be_one_is_refused(taken: Taken) -> None:
    taken.take("full", "full")
    taken.take("deep", "incr-diff", 2)
    lost = taken.take("lost", state="out_of_sync")
    with pytest.raises(Refused, match=f"{lost.backup_id} cannot be continued"):
        taken.choice(parent="lost")
    with pytest.raises(UsageProblem, match="of level 2 or above"):
        taken.choice("incr-diff", 1, parent="deep")
    with pytest.raises(UsageProblem, match="of level 3 or above"):
        taken.choice("incr-accu", 2, parent="deep")
    assert taken.choice("incr-accu", parent="deep").level == 3
    with pytest.raises(UsageProblem, match="not of elsewhere"):
        choose(taken.made.planner(), "elsewhere", parent=lost.backup_id)
    with pytest.raises(NotFound):
        choose(taken.made.planner(), "prod", parent="1999")


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
def test_modes_and_levels_that_do_not_go_together(mode: Mode, level: int | None, parent: str | None) -> None:
    with pytest.raises(UsageProblem):
        check_asked(mode, level, parent)
    check_asked("full", 0, None)  # a full may say that it is of level 0


def region(low: int, epoch: str = EPOCH) -> RegionState:
    return RegionState("orders", epoch, "0", low, 99, 99, 1)


def covered(end: int, in_chain: bool = True) -> Covered:
    return Covered("orders", EPOCH, "0", end, 1, 1, in_chain)


def test_a_parent_falls_short_when_records_behind_it_are_gone() -> None:
    assert not falls_short([region(20)], [covered(20)])
    assert falls_short([region(21)], [covered(20), covered(40, in_chain=False)])
    # A partition, or a life of the topic, that the chain has not seen begins where the source does.
    assert not falls_short([region(21)], [covered(20, in_chain=False)])
    assert not falls_short([region(21, "f" * 32)], [covered(20)])


def test_a_cumulative_backup_that_would_have_a_hole_is_a_differential(taken: Taken) -> None:
    taken.take("full", "full")
    taken.take("one")
    deep = taken.take("deep", "incr-diff", 2)
    chosen = taken.choice("incr-accu").instead()
    assert chosen.parent
    assert chosen.parent.backup_id == deep.backup_id
    assert (chosen.increment, chosen.level) == ("differential", 2)
    assert "has deleted records" in chosen.notes[0]
    assert chosen.instead() is chosen
    with pytest.raises(Refused, match="would have a hole"):
        taken.choice("incr-diff", parent="one").instead()


@pytest.mark.parametrize(("regions", "asked"), [(2, ["b7"]), (3, ["b7", None])])
def test_the_positions_of_all_backups_are_read_only_where_the_last_lacks_a_partition(
    regions: int, asked: list[str | None]
) -> None:
    topic = {"scope": "orders", "epoch": EPOCH, "in_chain": True, "backup_id": "b7"}
    ends = [{**topic, "region": region} for region in "01"]
    looked_at = []

    class Reader:
        def rows(self, name: str, **given: Any) -> list[dict[str, Any]]:
            if name == "region_backups":
                return [{**topic, "regions": regions}]
            looked_at.append(given["backups"])
            return ends

    assert region_ends(cast("Any", Reader()), "prod", "b1", 7) == ends
    assert looked_at == asked
