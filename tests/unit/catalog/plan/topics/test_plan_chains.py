"""Sets of backups that restore the same state, and how a restore's plan shows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.catalogs import backup_id
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.topics.chains import Cost, Step, backup_sets, on_path
from lakebackup.plan.topics.request import RestoreRequest, other_paths, plan_restore, read_backups
from lakebackup.rows.backups import Gap
from lakebackup.rules.times import parse_time


def step(name: str, parent: int | None, chain_place: int, *, in_use: bool = True) -> Step:
    return Step(name, "differential", 1, chain_place, parent, 0, in_use)


def costs(**sizes: tuple[int, int]) -> dict[str, Cost]:
    return {name: Cost(files, size, 0) for name, (files, size) in sizes.items()}


WEEK = [
    step("sun", None, 1),
    step("mon", 1, 2, in_use=False),
    step("tue", 2, 3, in_use=False),
    step("both", 1, 3),
    step("side", 2, 4, in_use=False),  # not on the path to wed
    step("wed", 3, 5),
]


def test_only_backups_that_lead_to_a_point_are_on_its_path() -> None:
    lost = step("lost", 9, 10, in_use=False)
    assert [s.backup_id for s in on_path([*WEEK, lost], 5)] == ["sun", "mon", "tue", "both", "wed"]
    assert on_path([lost], 10) == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # The merge needs less of everything. The backups that it merged are shown all the same.
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
def test_each_set_names_what_it_needs_least_of(
    sizes: dict[str, Cost], expected: list[tuple[tuple[str, ...], tuple[str, ...]]]
) -> None:
    sets = backup_sets(on_path(WEEK, 5), 5, sizes)
    assert [
        (tuple(s.backup_id for s in backup_set.steps), backup_set.least) for backup_set in sets
    ] == expected
    for backup_set in sets:
        assert backup_set.cost.bytes == sum(sizes[s.backup_id].bytes for s in backup_set.steps)


def test_many_sets_are_not_enumerated() -> None:
    # Two steps for each of 200 places make 2^200 sets.
    steps = [step("0", None, 1)]
    for chain_place in range(2, 202):
        steps += [
            step(f"a{chain_place}", chain_place - 1, chain_place),
            step(f"b{chain_place}", chain_place - 1, chain_place, in_use=False),
        ]
    sizes = {s.backup_id: Cost(1, 1 if s.backup_id.startswith("b") else 2, 1) for s in steps}
    used_set, smallest_set = backup_sets(on_path(steps, 201), 201, sizes)
    assert (used_set.cost.bytes, smallest_set.cost.bytes, smallest_set.least) == (402, 202, ("bytes",))


def records(*times: str) -> list[Record]:
    return [Record(0, parse_time(t, 0) // 60_000, parse_time(t, 0)) for t in times]


def time_of(clock: str) -> int:
    return parse_time(f"2024-06-13T{clock}Z", 0)


@pytest.fixture
def two_fulls(tmp_path: Path) -> MadeBackups:
    """A full, an incremental backup, and a later full, which also holds the records in between."""
    backups = MadeBackups(tmp_path)
    first = records("2024-06-13T06:10Z", "2024-06-13T06:19Z")
    second = records("2024-06-13T06:30Z", "2024-06-13T06:39Z")
    third = records("2024-06-13T06:50Z", "2024-06-13T08:00Z")
    backups.backup([first], end_ts=time_of("06:19:39"))
    backups.backup([second], end_ts=time_of("06:39:15"))
    backups.backup([[*first, *second, *third]], full=True, end_ts=time_of("08:19:39"))
    return backups


def request(backups: MadeBackups, **options: object) -> RestoreRequest:
    return RestoreRequest(destination=str(backups.folder), target="dir:x", topics=("orders",), **options)  # type: ignore[arg-type]


def test_times_between_two_chains_come_from_the_later_unless_it_lacks_them(
    two_fulls: MadeBackups,
) -> None:
    reader = two_fulls.planner()
    plan = plan_restore(request(two_fulls, to_ts=time_of("06:35:00")), reader)
    assert [part.backup_id for part in read_backups(plan, reader)] == [backup_id(1), backup_id(2)]
    assert plan.obstacles == ()
    # The topic still had the records after the chain's end, so the next full holds them.
    reader = two_fulls.planner()
    plan = plan_restore(request(two_fulls, to_ts=time_of("07:00:00")), reader)
    assert [part.backup_id for part in read_backups(plan, reader)] == [backup_id(3)]
    assert plan.obstacles == ()
    # If the next full has a gap there, times between the chains are refused, and earlier ones are not.
    (topic,) = plan.topics
    lost = {"epoch": topic.epoch, "from_position": 1, "to_position": 2, "reason": "purged"}
    span = {"from_ts": time_of("06:39:15"), "to_ts": time_of("08:19:39")}
    two_fulls.add(filled(Gap, backup_id=backup_id(3), **lost, **span))
    plan = plan_restore(request(two_fulls, to_ts=time_of("07:00:00")), two_fulls.planner())
    assert [o.reason for o in plan.obstacles] == ["gap"]
    assert plan_restore(request(two_fulls, to_ts=time_of("06:35:00")), two_fulls.planner()).obstacles == ()


def test_any_retained_backup_can_be_restored_by_its_id(two_fulls: MadeBackups) -> None:
    reader = two_fulls.planner()
    plan = plan_restore(request(two_fulls, backup=backup_id(2)), reader)
    assert [part.backup_id for part in read_backups(plan, reader)] == [backup_id(1), backup_id(2)]
    assert (plan.topics[0].end_ts, plan.entries) == (time_of("06:39:15"), 4)
    # A second plan is the same.
    assert plan_restore(request(two_fulls, backup=backup_id(2)), reader).entries == 4
    with pytest.raises(NotFound):
        plan_restore(request(two_fulls, backup="1999"), two_fulls.planner())


def test_an_unusable_backup_is_no_restore_point(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 0)]])
    backups.flush()
    lost_id = backups.backup([[Record(0, 1)]])
    (row,) = backups._rows["backups"]
    backups._rows["backups"] = [replace(row, state="out_of_sync")]
    with pytest.raises(Refused, match="its state is out_of_sync"):
        plan_restore(request(backups, backup=lost_id), backups.reader())


def test_a_merge_and_the_merged_backups_are_both_shown(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    for day in range(3):
        backups.backup([[Record(0, day, 1000 * day + 500)]])
    backups.flush()
    merge = backups.backup([[Record(0, 1, 1500), Record(0, 2, 2500)]], end_ts=3000)
    row = backups._rows["backups"][0]
    backups._rows["backups"][0] = replace(
        row, kind="cumulative", place=3, parent_place=1, parent=backup_id(1)
    )
    reader = backups.reader()
    plan = plan_restore(request(backups), reader)
    ((topics, (used_set, merged_set)),) = other_paths(plan, reader)
    assert topics == ["orders"]
    assert [s.backup_id for s in used_set.steps] == [backup_id(1), merge]
    assert [s.backup_id for s in merged_set.steps] == [backup_id(1), backup_id(2), backup_id(3)]
    assert (used_set.cost.entries, merged_set.cost.entries) == (3, 3)
    assert "backups" in used_set.least
