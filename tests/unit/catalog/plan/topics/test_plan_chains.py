"""Sets of backups that make up the same state, and what a restore's plan shows of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.catalogs import backup_id
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.topics.chains import Cost, Step, on_path, other_sets
from lakebackup.plan.topics.request import RestoreRequest, other_paths, plan_restore, read_backups
from lakebackup.rows.backups import Gap
from lakebackup.rules.times import parse_time


def step(name: str, parent: int | None, place: int, *, used: bool = True) -> Step:
    return Step(name, "differential", 1, place, parent, 0, used)


def costs(**sizes: tuple[int, int]) -> dict[str, Cost]:
    return {name: Cost(files, size, 0) for name, (files, size) in sizes.items()}


WEEK = [
    step("sun", None, 1),
    step("mon", 1, 2, used=False),
    step("tue", 2, 3, used=False),
    step("both", 1, 3),
    step("side", 2, 4, used=False),  # leads elsewhere
    step("wed", 3, 5),
]


def test_what_leads_elsewhere_or_comes_from_nowhere_is_not_on_the_way() -> None:
    lost = step("lost", 9, 10, used=False)
    assert [s.backup_id for s in on_path([*WEEK, lost], 5)] == ["sun", "mon", "tue", "both", "wed"]
    assert on_path([lost], 10) == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # Less in all: the merge; and what it merged is shown all the same.
        (
            costs(sun=(1, 9), mon=(2, 5), tue=(2, 5), both=(3, 8), wed=(1, 1)),
            [(("sun", "both", "wed"), ("bytes", "files", "backups")), (("sun", "mon", "tue", "wed"), ())],
        ),
        # The merge has fewer files, and more bytes.
        (
            costs(sun=(1, 9), mon=(2, 5), tue=(2, 5), both=(3, 12), wed=(1, 1)),
            [(("sun", "both", "wed"), ("files", "backups")), (("sun", "mon", "tue", "wed"), ("bytes",))],
        ),
    ],
)
def test_sets_and_what_each_takes_least_of(
    sizes: dict[str, Cost], expected: list[tuple[tuple[str, ...], tuple[str, ...]]]
) -> None:
    found = other_sets(on_path(WEEK, 5), 5, sizes)
    assert [(tuple(s.backup_id for s in way.steps), way.least) for way in found] == expected
    for way in found:
        assert way.cost.bytes == sum(sizes[s.backup_id].bytes for s in way.steps)


def test_many_ways_are_not_gone_one_by_one() -> None:
    # Two ways for each of 200 places: 2^200 sets.
    steps = [step("0", None, 1)]
    for place in range(2, 202):
        steps += [step(f"a{place}", place - 1, place), step(f"b{place}", place - 1, place, used=False)]
    sizes = {s.backup_id: Cost(1, 1 if s.backup_id.startswith("b") else 2, 1) for s in steps}
    used, fewest = other_sets(on_path(steps, 201), 201, sizes)
    assert (used.cost.bytes, fewest.cost.bytes, fewest.least) == (402, 202, ("bytes",))


def records(*times: str) -> list[Record]:
    return [Record(0, parse_time(t, 0) // 60_000, parse_time(t, 0)) for t in times]


def at(clock: str) -> int:
    return parse_time(f"2024-06-13T{clock}Z", 0)


@pytest.fixture
def two_fulls(tmp_path: Path) -> MadeBackups:
    """A full, an incremental one, and later another full that holds what came between."""
    made = MadeBackups(tmp_path)
    one = records("2024-06-13T06:10Z", "2024-06-13T06:19Z")
    two = records("2024-06-13T06:30Z", "2024-06-13T06:39Z")
    three = records("2024-06-13T06:50Z", "2024-06-13T08:00Z")
    made.backup([one], end_ts=at("06:19:39"))
    made.backup([two], end_ts=at("06:39:15"))
    made.backup([[*one, *two, *three]], full=True, end_ts=at("08:19:39"))
    return made


def asked(made: MadeBackups, **how: object) -> RestoreRequest:
    return RestoreRequest(destination=str(made.folder), target="dir:x", topics=("orders",), **how)  # type: ignore[arg-type]


def test_times_between_two_chains_come_from_the_later_unless_it_lacks_them(
    two_fulls: MadeBackups,
) -> None:
    reader = two_fulls.planner()
    plan = plan_restore(asked(two_fulls, to_ts=at("06:35:00")), reader)
    assert [part.backup_id for part in read_backups(plan)] == [backup_id(1), backup_id(2)]
    assert plan.obstacles == ()
    # The log has kept what came after the chain's end, so the next full has it.
    reader = two_fulls.planner()
    plan = plan_restore(asked(two_fulls, to_ts=at("07:00:00")), reader)
    assert [part.backup_id for part in read_backups(plan)] == [backup_id(3)]
    assert plan.obstacles == ()
    # When it has not, the times between are refused, and those before are not.
    (topic,) = plan.topics
    lost = {"epoch": topic.epoch, "from_position": 1, "to_position": 2, "reason": "purged"}
    span = {"from_ts": at("06:39:15"), "to_ts": at("08:19:39")}
    two_fulls.add(filled(Gap, backup_id=backup_id(3), **lost, **span))
    plan = plan_restore(asked(two_fulls, to_ts=at("07:00:00")), two_fulls.planner())
    assert [o.reason for o in plan.obstacles] == ["gap"]
    assert plan_restore(asked(two_fulls, to_ts=at("06:35:00")), two_fulls.planner()).obstacles == ()


def test_any_retained_point_by_its_id(two_fulls: MadeBackups) -> None:
    reader = two_fulls.planner()
    plan = plan_restore(asked(two_fulls, backup=backup_id(2)), reader)
    assert [part.backup_id for part in read_backups(plan)] == [backup_id(1), backup_id(2)]
    assert (plan.topics[0].end_ts, plan.entries) == (at("06:39:15"), 4)
    # Asked twice, it says the same.
    assert plan_restore(asked(two_fulls, backup=backup_id(2)), reader).entries == 4
    with pytest.raises(NotFound):
        plan_restore(asked(two_fulls, backup="1999"), two_fulls.planner())


def test_a_backup_that_cannot_be_used_is_no_point(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 0)]])
    made.flush()
    lost = made.backup([[Record(0, 1)]])
    (row,) = made._rows["backups"]
    made._rows["backups"] = [replace(row, state="out_of_sync")]
    with pytest.raises(Refused, match="its state is out_of_sync"):
        plan_restore(asked(made, backup=lost), made.reader())


def test_a_merge_and_what_it_merged_are_both_shown(tmp_path: Path) -> None:
    made = MadeBackups(tmp_path)
    for day in range(3):
        made.backup([[Record(0, day, 1000 * day + 500)]])
    made.flush()
    merge = made.backup([[Record(0, 1, 1500), Record(0, 2, 2500)]], end_ts=3000)
    row = made._rows["backups"][0]
    made._rows["backups"][0] = replace(row, kind="cumulative", place=3, parent_place=1, parent=backup_id(1))
    reader = made.reader()
    plan = plan_restore(asked(made), reader)
    ((topics, (used, merged)),) = other_paths(plan)
    assert topics == ["orders"]
    assert [s.backup_id for s in used.steps] == [backup_id(1), merge]
    assert [s.backup_id for s in merged.steps] == [backup_id(1), backup_id(2), backup_id(3)]
    assert (used.cost.entries, merged.cost.entries) == (3, 3)
    assert "backups" in used.least
