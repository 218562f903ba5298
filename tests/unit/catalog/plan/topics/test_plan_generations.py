"""When a compacted topic begins a generation, and which number it gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.topics.backup import BackupPlan, Covered, Parent, plan_backup
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


QUICK = topic({**COMPACT, "delete.retention.ms": "500"})


@pytest.mark.parametrize(
    ("before", "state", "at", "expected"),
    [
        pytest.param(held(), None, 2_000, (3, None), id="it goes on"),
        pytest.param(None, None, 2_000, (0, "first"), id="the first has number 0"),
        pytest.param(None, topic({}), 2_000, (0, None), id="not compacted"),
        pytest.param(held(bytes=200), None, 2_000, (3, None), id="as large again"),
        pytest.param(held(bytes=201), None, 2_000, (4, "growth"), id="larger"),
        pytest.param(held(first_bytes=0, bytes=0), None, 2_000, (3, None), id="empty still"),
        pytest.param(held(first_bytes=0, bytes=1), None, 2_000, (4, "growth"), id="no more"),
        pytest.param(held(), None, DAY + 999, (3, None), id="tombstones stay a day by default"),
        pytest.param(held(), None, DAY + 1_000, (4, "tombstones"), id="and no longer"),
        # A run that took too long is made good by the next.
        pytest.param(held(longest_ms=499), QUICK, 1_100, (3, None), id="a long run"),
        pytest.param(held(longest_ms=500), QUICK, 1_100, (4, "tombstones"), id="too long a run"),
        pytest.param(
            held(), topic({}, {"cleanup.policy": "compact", "delete.retention.ms": "10"}), 2_000,
            (4, "tombstones"), id="the brokers' setting counts where the topic has none",
        ),
        pytest.param(
            held(), topic({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}), DAY * 9, (3, None),
            id="and only there",
        ),
        # One that another chain holds gets a number that was never given.
        pytest.param(held(generation=None, end_ts=None, last=7), None, 2_000, (8, "first"), id="elsewhere"),
    ],
)  # fmt: skip
def test_when_a_generation_begins(
    before: Held | None, state: TopicState | None, at: int, expected: tuple[int, str | None]
) -> None:
    assert chosen(before, state, at=at) == expected


def test_a_topic_of_the_clusters_own_has_no_generations() -> None:
    own = TopicState("__consumer_offsets", EPOCH, 1, 1, COMPACT)
    before = replace(held(bytes=900, end_ts=0), scope=own.scope)
    (found,) = choose([own], [before], full=False, asked=True, growth=2.0, end_ts=9 * DAY).values()
    assert (found.number, found.anew, found.safe_until) == (3, None, None)


def test_asked_and_full() -> None:
    assert chosen(held(), asked=True) == (4, "asked")
    assert chosen(held(), full=True) == (4, "full")
    assert chosen(held(), topic({}), asked=True, full=True) == (3, None)


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


@pytest.mark.parametrize(("asked", "start", "generation"), [(True, 5, 4), (False, 20, 3)])
def test_a_new_generation_reads_from_the_low_watermark_inside_a_differential(
    asked: bool, start: int, generation: int
) -> None:
    made = plan(5, 30, held(), new_generation=asked)
    (position,), (scope,), ((split,),) = made.positions, made.scopes, made.tasks
    assert (made.kind, position.start_position, position.end_position) == ("differential", start, 30)
    assert (scope.generation, split.generation, split.start, made.gaps) == (generation, generation, start, ())


def test_what_was_purged_before_a_new_generation_is_a_gap_that_nothing_continues_over() -> None:
    made = plan(25, 30, held(), new_generation=True)
    assert (made.kind, [gap.bridged for gap in made.gaps]) == ("differential", [False])
    for on_gap, kind in (("restart", "differential"), ("full", "full")):
        made = plan(25, 30, held(), on_gap=on_gap)
        assert (made.kind, made.scopes[0].generation) == (kind, 4)
        assert [gap.bridged for gap in made.gaps] == [False]


def test_reading_that_ends_too_late_is_reported() -> None:
    made = plan(5, 30, held())
    assert made.missed_tombstones(1_000 + DAY - 1) == []
    assert made.missed_tombstones(1_000 + DAY) == ["t"]
    again = plan(5, 30, held(), new_generation=True)
    assert again.missed_tombstones(2_000 + DAY - 1) == []
