"""When a compacted topic begins a generation, and which number it gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.topics.backup import BackupPlan, Covered, Parent, plan_backup
from lakebackup.plan.topics.generations import GenerationHistory, choose, is_compacted

EPOCH = "0" * 32
TOPIC_KEY = ("t", EPOCH)
DAY = 86_400_000
COMPACT = {"cleanup.policy": "compact"}


def topic(settings: dict[str, str] | None = None, inherited: dict[str, str] | None = None) -> TopicState:
    own = COMPACT if settings is None else settings
    return TopicState("t", EPOCH, 1, 1, own, {"broker": inherited} if inherited else {})


def held_generation(**changes: int | None) -> GenerationHistory:
    columns: dict[str, object] = {
        "scope": "t", "epoch": EPOCH, "last": 3, "generation": 3, "first_bytes": 100, "bytes": 150,
        "end_ts": 1_000, "longest_ms": 0, **changes,
    }  # fmt: skip
    return GenerationHistory(**columns)  # type: ignore[arg-type]


def choose_number(
    previous: GenerationHistory | None,
    state: TopicState | None = None,
    *,
    end_ts: int = 2_000,
    **changes: object,
) -> tuple[int, str | None]:
    arguments: dict[str, object] = {"full": False, "requested": False, "growth": 2.0, **changes}
    generations = [previous] if previous else []
    choices = choose([state or topic()], generations, end_ts=end_ts, **arguments)  # type: ignore[arg-type]
    return choices[TOPIC_KEY].number, choices[TOPIC_KEY].anew


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("compact", True), ("compact,delete", True), ("delete, compact", True), ("delete", False), ("", False)],
)
def test_a_topic_is_compacted_if_its_policy_includes_compact(policy: str, expected: bool) -> None:
    assert is_compacted({"cleanup.policy": policy}) is expected


QUICK = topic({**COMPACT, "delete.retention.ms": "500"})


@pytest.mark.parametrize(
    ("previous", "state", "end_ts", "expected"),
    [
        pytest.param(held_generation(), None, 2_000, (3, None), id="it goes on"),
        pytest.param(None, None, 2_000, (0, "first"), id="the first has number 0"),
        pytest.param(None, topic({}), 2_000, (0, None), id="not compacted"),
        pytest.param(held_generation(bytes=200), None, 2_000, (3, None), id="as large again"),
        pytest.param(held_generation(bytes=201), None, 2_000, (4, "growth"), id="larger"),
        pytest.param(held_generation(first_bytes=0, bytes=0), None, 2_000, (3, None), id="empty still"),
        pytest.param(held_generation(first_bytes=0, bytes=1), None, 2_000, (4, "growth"), id="no more"),
        pytest.param(held_generation(), None, DAY + 999, (3, None), id="tombstones stay a day by default"),
        pytest.param(held_generation(), None, DAY + 1_000, (4, "tombstones"), id="and no longer"),
        # After a run that took too long, the next one begins a generation.
        pytest.param(held_generation(longest_ms=499), QUICK, 1_100, (3, None), id="a long run"),
        pytest.param(held_generation(longest_ms=500), QUICK, 1_100, (4, "tombstones"), id="too long a run"),
        pytest.param(
            held_generation(), topic({}, {"cleanup.policy": "compact", "delete.retention.ms": "10"}), 2_000,
            (4, "tombstones"), id="the brokers' setting counts where the topic has none",
        ),
        pytest.param(
            held_generation(), topic({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}), DAY * 9,
            (3, None), id="and only there",
        ),
        # A topic that only another chain holds gets an unused number.
        pytest.param(
            held_generation(generation=None, end_ts=None, last=7), None, 2_000, (8, "first"), id="elsewhere"
        ),
    ],
)  # fmt: skip
def test_when_a_generation_begins(
    previous: GenerationHistory | None,
    state: TopicState | None,
    end_ts: int,
    expected: tuple[int, str | None],
) -> None:
    assert choose_number(previous, state, end_ts=end_ts) == expected


def test_an_internal_topic_has_no_generations() -> None:
    internal = TopicState("__consumer_offsets", EPOCH, 1, 1, COMPACT)
    previous = replace(held_generation(bytes=900, end_ts=0), scope=internal.scope)
    (choice,) = choose(
        [internal], [previous], full=False, requested=True, growth=2.0, end_ts=9 * DAY
    ).values()
    assert (choice.number, choice.anew, choice.safe_until) == (3, None, None)


def test_requests_and_fulls_begin_generations() -> None:
    assert choose_number(held_generation(), requested=True) == (4, "asked")
    assert choose_number(held_generation(), full=True) == (4, "full")
    assert choose_number(held_generation(), topic({}), requested=True, full=True) == (3, None)


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 500), st.integers(0, 2 * DAY)),
        max_size=30,
    )
)
def test_numbers_of_generations_are_never_reused(steps: list[tuple[bool, bool, bool, int, int]]) -> None:
    """For any history of a topic: fulls, requests, changes of its policy, growth and pauses."""
    previous: GenerationHistory | None = None
    numbers: list[int] = []
    end_ts = 0
    for full, requested, compacted, size, pause in steps:
        end_ts += pause
        number, reason = choose_number(
            previous, topic() if compacted else topic({}), end_ts=end_ts, full=full, requested=requested
        )
        if reason:
            assert number not in numbers
            numbers.append(number)
        elif previous is not None and not full:
            assert number == previous.generation
        if previous is not None:
            assert number >= previous.last
        first = size if reason or previous is None else previous.first_bytes
        total = size if reason or previous is None else previous.bytes + size
        previous = held_generation(
            last=number, generation=number, first_bytes=first, bytes=total, end_ts=end_ts
        )


PARENT = Parent(
    backup_id="b1", base="b1", number=1, level=0, chain_position=0, place=1, link=1, branch=0, end_ts=1_000
)


def plan(low: int, end: int, previous: GenerationHistory, **changes: object) -> BackupPlan:
    arguments: dict[str, object] = {
        "backup_id": "b2", "source": "c", "topics": [topic()],
        "regions": [RegionState("t", EPOCH, "0", low, end, end, None)], "end_ts": 2_000, "parent": PARENT,
        "covered": [Covered("t", EPOCH, "0", 20, 1_000, 1, True)], "histories": [previous], **changes,
    }  # fmt: skip
    return plan_backup(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("requested", "start", "generation"), [(True, 5, 4), (False, 20, 3)])
def test_a_new_generation_reads_from_the_low_watermark_inside_a_differential(
    requested: bool, start: int, generation: int
) -> None:
    backup_plan = plan(5, 30, held_generation(), new_generation=requested)
    (position,), (scope,), ((split,),) = backup_plan.positions, backup_plan.scopes, backup_plan.tasks
    assert (backup_plan.kind, position.start_position, position.end_position) == ("differential", start, 30)
    assert (scope.generation, split.generation, split.start, backup_plan.gaps) == (
        generation,
        generation,
        start,
        (),
    )


def test_records_purged_before_a_new_generation_are_a_gap_that_is_not_bridged() -> None:
    backup_plan = plan(25, 30, held_generation(), new_generation=True)
    assert (backup_plan.kind, [gap.bridged for gap in backup_plan.gaps]) == ("differential", [False])
    for on_gap, kind in (("restart", "differential"), ("full", "full")):
        backup_plan = plan(25, 30, held_generation(), on_gap=on_gap)
        assert (backup_plan.kind, backup_plan.scopes[0].generation) == (kind, 4)
        assert [gap.bridged for gap in backup_plan.gaps] == [False]


def test_reading_that_ends_too_late_is_reported() -> None:
    backup_plan = plan(5, 30, held_generation())
    assert backup_plan.missed_tombstones(1_000 + DAY - 1) == []
    assert backup_plan.missed_tombstones(1_000 + DAY) == ["t"]
    next_plan = plan(5, 30, held_generation(), new_generation=True)
    assert next_plan.missed_tombstones(2_000 + DAY - 1) == []
