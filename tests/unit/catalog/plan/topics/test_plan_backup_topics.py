"""The plan of a topic backup: where each partition starts, what is a gap, how work is split."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakebackup.errors import Refused
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.topics.backup import BackupPlan, Covered, Parent, plan_backup
from lakebackup.plan.topics.generations import GenerationHistory

OLD, NEW = "0" * 32, "1" * 32
PARENT = Parent(
    backup_id="b1", base="b1", number=1, level=0, chain_position=0, place=1, link=1, branch=0, end_ts=1_000
)


def topic(name: str = "orders", epoch: str = OLD, regions: int = 1) -> TopicState:
    return TopicState(name, epoch, regions, 1, {"cleanup.policy": "delete"})


def region(
    low: int, end: int, *, epoch: str = OLD, number: str = "0", high: int | None = None
) -> RegionState:
    return RegionState("orders", epoch, number, low, end, end if high is None else high, 3)


def covered(
    end: int, *, epoch: str = OLD, number: str = "0", backup: int = 1, in_chain: bool = True
) -> Covered:
    return Covered("orders", epoch, number, end, 1_000 * backup, backup, in_chain)


def plan(regions: list[RegionState], backed_up: list[Covered], **changes: object) -> BackupPlan:
    arguments: dict[str, object] = {
        "backup_id": "b2",
        "source": "c",
        "topics": [topic(epoch=regions[0].epoch, regions=len(regions))],
        "regions": regions,
        "end_ts": 2_000,
        "parent": PARENT if backed_up else None,
        "covered": backed_up,
        **changes,
    }
    return plan_backup(**arguments)  # type: ignore[arg-type]


def ranges(backup_plan: BackupPlan) -> list[tuple[int, int]]:
    return [(p.start_position, p.end_position) for p in backup_plan.positions]


@pytest.mark.parametrize(
    ("regions", "backed_up", "kind", "read"),
    [
        pytest.param([region(5, 20)], [], "full", [(5, 20)], id="the first, from the low watermark"),
        pytest.param([region(0, 30)], [covered(20)], "differential", [(20, 30)], id="the next, what is new"),
        pytest.param([region(20, 40)], [covered(20)], "differential", [(20, 40)], id="purged up to there"),
        pytest.param([region(0, 20)], [covered(20)], "differential", [(20, 20)], id="nothing new"),
        pytest.param(
            [region(0, 30), region(4, 9, number="1")], [covered(20)], "differential", [(20, 30), (4, 9)],
            id="a partition that the chain has not seen",
        ),
        # An earlier backup read uncommitted records up to 20. This one reads committed records, up to 15.
        pytest.param([region(0, 15, high=20)], [covered(20)], "differential", [(20, 20)], id="open"),
    ],
)  # fmt: skip
def test_the_ranges_that_a_backup_reads(
    regions: list[RegionState], backed_up: list[Covered], kind: str, read: list[tuple[int, int]]
) -> None:
    backup_plan = plan(regions, backed_up)
    assert (backup_plan.kind, backup_plan.parent, ranges(backup_plan), backup_plan.gaps) == (
        kind,
        PARENT if backed_up else None,
        read,
        (),
    )
    assert bool(backup_plan.tasks) == any(start < end for start, end in read)


@pytest.mark.parametrize(
    ("regions", "idle"),
    [
        ([region(0, 20)], True),
        ([region(0, 21)], False),
        ([region(0, 20), region(0, 0, number="1")], False),  # an empty partition is news too
        ([region(30, 30)], False),  # and so is a gap
    ],
)
def test_a_batch_is_idle_when_it_adds_nothing_new(regions: list[RegionState], idle: bool) -> None:
    backup_plan = plan(regions, [covered(20)], increment="log", on_gap="continue")
    assert (backup_plan.kind, backup_plan.idle) == ("log", idle)


def test_the_first_batch_is_a_full_even_if_it_is_empty() -> None:
    backup_plan = plan([region(0, 0)], [], increment="log")
    assert (backup_plan.kind, backup_plan.idle) == ("full", False)


@pytest.mark.parametrize(
    ("on_gap", "kind", "bridged"), [("full", "full", False), ("continue", "differential", True)]
)
def test_deleted_records_are_a_gap(on_gap: str, kind: str, bridged: bool) -> None:
    backup_plan = plan([region(21, 40)], [covered(20)], on_gap=on_gap)
    (gap,) = backup_plan.gaps
    assert (backup_plan.kind, ranges(backup_plan)) == (kind, [(21, 40)])
    assert (gap.from_position, gap.to_position, gap.reason, gap.bridged) == (20, 21, "purged", bridged)
    assert (gap.from_ts, gap.to_ts) == (1_000, 2_000)


def test_only_the_topic_with_a_gap_starts_over() -> None:
    """Both partitions of the topic start over, since a restore reads files of one generation only."""
    users = RegionState("users", NEW, "0", 3, 9, 9, 3)
    generations = [
        GenerationHistory(t, e, 4, 4, 0, 0, 1_000, 0) for t, e in (("orders", OLD), ("users", NEW))
    ]
    backup_plan = plan(
        [region(30, 40), region(2, 50, number="1"), users],
        [covered(20), covered(45, number="1"), replace(covered(8, epoch=NEW), scope="users")],
        topics=[topic(regions=2), topic("users", NEW)],
        histories=generations,
    )
    assert (backup_plan.kind, ranges(backup_plan)) == ("differential", [(30, 40), (2, 50), (8, 9)])
    assert {scope.scope: scope.generation for scope in backup_plan.scopes} == {"orders": 5, "users": 4}
    assert [(gap.region, gap.bridged) for gap in backup_plan.gaps] == [("0", False)]
    assert [(scope, g.number, g.anew) for scope, g in backup_plan.restarted] == [("orders", 5, "purged")]
    # The next backup continues the new generation.
    generations = [replace(h, last=5, generation=5) if h.scope == "orders" else h for h in generations]
    next_plan = plan([region(30, 44)], [covered(40, backup=2)], histories=generations)
    assert (ranges(next_plan), next_plan.scopes[0].generation) == ([(40, 44)], 5)


def test_with_on_gap_fail_the_error_names_the_gap() -> None:
    with pytest.raises(Refused, match=r"orders, partition 0, offsets \[20, 30\)"):
        plan([region(30, 40)], [covered(20)], on_gap="fail")


def test_a_recreated_topic_starts_over_and_is_reported_once() -> None:
    backup_plan = plan([region(0, 7, epoch=NEW)], [covered(20)])
    (gap,) = backup_plan.gaps
    assert (backup_plan.kind, ranges(backup_plan)) == ("differential", [(0, 7)])
    assert (gap.epoch, gap.from_position, gap.to_position, gap.reason) == (OLD, 20, None, "recreated")
    next_plan = plan([region(0, 9, epoch=NEW)], [covered(20), covered(7, epoch=NEW, backup=2)])
    assert (next_plan.gaps, ranges(next_plan)) == ((), [(7, 9)])


def test_a_topic_recreated_twice_has_one_gap_after_each_epoch() -> None:
    backup_plan = plan([region(0, 4, epoch="2" * 32)], [covered(20), covered(7, epoch=NEW, backup=2)])
    assert [(gap.epoch, gap.from_position, gap.from_ts) for gap in backup_plan.gaps] == [(NEW, 7, 2_000)]


def test_a_gap_after_another_chain_is_never_bridged() -> None:
    other_chain = covered(20, in_chain=False)
    for options, kind in (
        ({"on_gap": "full"}, "full"),
        ({}, "differential"),
        ({"on_gap": "continue"}, "differential"),
    ):
        backup_plan = plan([region(30, 40)], [other_chain], **options)
        assert (backup_plan.kind, ranges(backup_plan)) == (kind, [(30, 40)])
        assert [(gap.from_position, gap.bridged) for gap in backup_plan.gaps] == [(20, False)]
    assert ranges(plan([region(5, 40)], [other_chain])) == [(5, 40)]


def test_settings_are_stored_as_json_with_the_inherited_ones() -> None:
    assert json.loads(plan([region(0, 1)], []).scopes[0].settings) == {"cleanup.policy": "delete"}
    inherited = {"broker": {"retention.ms": "5"}, "default": {"segment.ms": "7"}}
    state = replace(topic(), inherited=inherited)
    (scope,) = plan([region(0, 1)], [], topics=[state]).scopes
    assert json.loads(scope.settings) == {"cleanup.policy": "delete", "inherited": inherited}


def with_hidden(since: int | None, *, end: int = 20, number: str = "0") -> RegionState:
    """A partition in which an open transaction, whose first record is of `since`, hides ten offsets."""
    return replace(region(0, end, number=number, high=end + 10), open_since=since)


@pytest.mark.parametrize(
    ("since", "complete_ts"),
    [
        pytest.param(None, None, id="nothing is hidden"),
        pytest.param(1_500, 1_499, id="up to the first hidden record"),
        pytest.param(0, -1, id="a record of 1970"),
        pytest.param(-1, -1, id="a record without a time"),
        pytest.param(2_001, -1, id="a record of the future"),
    ],
)
def test_a_backup_promises_no_time_that_an_open_transaction_hides(
    since: int | None, complete_ts: int | None
) -> None:
    backup_plan = plan([region(0, 30, number="1"), with_hidden(since)], [])
    assert [scope.complete_ts for scope in backup_plan.scopes] == [complete_ts]
    assert [position.open_since for position in backup_plan.positions] == [None, since]


@pytest.mark.parametrize(
    ("since", "long_open"), [(40_000, True), (40_001, False), (-1, True), (99_000, False)]
)
def test_a_transaction_that_is_open_longer_than_producers_may_is_reported(
    since: int, *, long_open: bool
) -> None:
    backup_plan = plan([with_hidden(since)], [], end_ts=100_000)
    assert (len(backup_plan.long_open), len(backup_plan.in_flight)) == (int(long_open), int(not long_open))


@pytest.mark.parametrize(
    ("previous", "idle"),
    [
        pytest.param(covered(20), False, id="the backup before ended there, and nothing was hidden"),
        pytest.param(replace(covered(20, backup=70), open_since=60_000), False, id="it was in flight then"),
        pytest.param(replace(covered(20, backup=130), open_since=60_000), True, id="it was reported"),
    ],
)
def test_following_reports_a_hanging_transaction_once(previous: Covered, *, idle: bool) -> None:
    assert plan([with_hidden(60_000)], [previous], end_ts=200_000).idle == idle


def test_a_gap_begins_where_the_previous_backup_was_complete() -> None:
    (gap,) = plan([region(30, 40)], [replace(covered(20), complete_ts=800)]).gaps
    assert (gap.from_position, gap.to_position, gap.from_ts) == (20, 30, 800)
