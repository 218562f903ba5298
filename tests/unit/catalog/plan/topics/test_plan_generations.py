"""When a compacted topic begins a generation, and which number it gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.plan.topics.backup import BackupPlan, Covered, Parent, RegionState, TopicState, plan_backup
from lakebackup.plan.topics.generations import Held, choose, is_compacted

EPOCH = "0" * 32
PLACE = ("t", EPOCH)
DAY = 86_400_000
COMPACT = {"cleanup.policy": "compact"}


def topic(settings: dict[str, str] | None = None, inherited: dict[str, str] | None = None) -> TopicState:
    own = COMPACT if settings is None else settings
    return TopicState("t", EPOCH, 1, 1, own, {"broker": inherited} if inherited else {})


def held(**changes: int | None) -> Held:
    known: dict[str, object] = {
        "scope": "t", "epoch": EPOCH, "last": 3, "generation": 3, "first_bytes": 100, "bytes": 150,
        "end_ts": 1_000, "longest_ms": 0, **changes,
    }  # fmt: skip
    return Held(**known)  # type: ignore[arg-type]


def chosen(
    before: Held | None, state: TopicState | None = None, *, at: int = 2_000, **changes: object
) -> tuple[int, str | None]:
    arguments: dict[str, object] = {"full": False, "asked": False, "growth": 2.0, **changes}
    known = [before] if before else []
    found = choose([state or topic()], known, end_ts=at, **arguments)  # type: ignore[arg-type]
    return found[PLACE].number, found[PLACE].anew


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("compact", True), ("compact,delete", True), ("delete, compact", True), ("delete", False), ("", False)],
)
def test_what_is_compacted(policy: str, expected: bool) -> None:
    assert is_compacted({"cleanup.policy": policy}) is expected


def test_a_topic_goes_on_with_its_generation() -> None:
    assert chosen(held()) == (3, None)


def test_the_first_has_number_0() -> None:
    assert chosen(None) == (0, "first")
    assert chosen(None, topic({})) == (0, None)


@pytest.mark.parametrize(("size", "expected"), [(200, (3, None)), (201, (4, "growth"))])
def test_growth(size: int, expected: tuple[int, str | None]) -> None:
    assert chosen(held(bytes=size)) == expected


def test_an_empty_beginning_is_outgrown_by_the_first_record() -> None:
    assert chosen(held(first_bytes=0, bytes=1)) == (4, "growth")
    assert chosen(held(first_bytes=0, bytes=0)) == (3, None)


@pytest.mark.parametrize(("at", "expected"), [(DAY + 999, (3, None)), (DAY + 1_000, (4, "tombstones"))])
def test_tombstones_may_be_gone_after_a_day_by_default(at: int, expected: tuple[int, str | None]) -> None:
    assert chosen(held(), at=at) == expected


@pytest.mark.parametrize(("span", "expected"), [(499, (3, None)), (500, (4, "tombstones"))])
def test_a_run_that_took_too_long_is_made_good_by_the_next(
    span: int, expected: tuple[int, str | None]
) -> None:
    quick = topic({**COMPACT, "delete.retention.ms": "500"})
    assert chosen(held(longest_ms=span), quick, at=1_100) == expected


def test_the_brokers_setting_counts_where_the_topic_has_none() -> None:
    inherited = topic({}, {"cleanup.policy": "compact", "delete.retention.ms": "10"})
    assert chosen(held(), inherited) == (4, "tombstones")
    assert chosen(held(), topic({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}), at=DAY * 9) == (
        3,
        None,
    )


def test_a_topic_of_the_clusters_own_has_no_generations() -> None:
    own = TopicState("__consumer_offsets", EPOCH, 1, 1, COMPACT)
    before = replace(held(bytes=900, end_ts=0), scope=own.scope)
    (found,) = choose([own], [before], full=False, asked=True, growth=2.0, end_ts=9 * DAY).values()
    assert (found.number, found.anew, found.safe_until) == (3, None, None)


def test_asked_and_full() -> None:
    assert chosen(held(), asked=True) == (4, "asked")
    assert chosen(held(), full=True) == (4, "full")
    assert chosen(held(), topic({}), asked=True, full=True) == (3, None)


def test_a_topic_that_another_chain_holds_gets_a_number_that_was_never_given() -> None:
    assert chosen(held(generation=None, end_ts=None, last=7)) == (8, "first")


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 500), st.integers(0, 2 * DAY)),
        max_size=30,
    )
)
def test_numbers_never_come_twice_but_in_one_chain(steps: list[tuple[bool, bool, bool, int, int]]) -> None:
    """Over any life of a topic: fulls, requests, changes of its policy, growth and pauses."""
    before: Held | None = None
    begun: list[int] = []
    at = 0
    for full, asked, compacted, size, pause in steps:
        at += pause
        number, anew = chosen(before, topic() if compacted else topic({}), at=at, full=full, asked=asked)
        if anew:
            assert number not in begun
            begun.append(number)
        elif before is not None and not full:
            assert number == before.generation
        if before is not None:
            assert number >= before.last
        first = size if anew or before is None else before.first_bytes
        total = size if anew or before is None else before.bytes + size
        before = held(last=number, generation=number, first_bytes=first, bytes=total, end_ts=at)


PARENT = Parent(
    backup_id="b1", base="b1", number=1, level=0, chain_position=0, place=1, link=1, branch=0, end_ts=1_000
)


def plan(low: int, end: int, before: Held, **changes: object) -> BackupPlan:
    arguments: dict[str, object] = {
        "backup_id": "b2", "source": "c", "topics": [topic()],
        "regions": [RegionState("t", EPOCH, "0", low, end, end, None)], "end_ts": 2_000, "parent": PARENT,
        "covered": [Covered("t", EPOCH, "0", 20, 1_000, 1, True)], "held": [before], **changes,
    }  # fmt: skip
    return plan_backup(**arguments)  # type: ignore[arg-type]


def test_a_new_generation_reads_from_the_low_watermark_inside_a_differential() -> None:
    made = plan(5, 30, held(), new_generation=True)
    (position,), (scope,), ((split,),) = made.positions, made.scopes, made.tasks
    assert (made.kind, position.start_position, position.end_position) == ("differential", 5, 30)
    assert (scope.generation, split.generation, split.start, made.gaps) == (4, 4, 5, ())


def test_one_that_goes_on_reads_what_is_new() -> None:
    made = plan(5, 30, held())
    (position,), (scope,), ((split,),) = made.positions, made.scopes, made.tasks
    assert (position.start_position, scope.generation, split.generation) == (20, 3, 3)


def test_what_was_purged_before_a_new_generation_is_a_gap_that_nothing_goes_on_over() -> None:
    made = plan(25, 30, held(), new_generation=True)
    assert (made.kind, [gap.bridged for gap in made.gaps]) == ("differential", [False])
    for on_gap, kind in (("restart", "differential"), ("full", "full")):
        made = plan(25, 30, held(), on_gap=on_gap)
        assert (made.kind, made.scopes[0].generation) == (kind, 4)
        assert [gap.bridged for gap in made.gaps] == [False]


def test_reading_that_ends_too_late_is_told() -> None:
    made = plan(5, 30, held())
    assert made.missed_tombstones(1_000 + DAY - 1) == []
    assert made.missed_tombstones(1_000 + DAY) == ["t"]
    again = plan(5, 30, held(), new_generation=True)
    assert again.missed_tombstones(2_000 + DAY - 1) == []
