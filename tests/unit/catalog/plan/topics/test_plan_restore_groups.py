"""Names of groups, topics that answer for others, and outcomes that the target decides."""

from __future__ import annotations

from typing import Any

import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.topics import groups
from lakebackup.plan.topics.groups import Committed, GroupState, plan_groups


def row(**values: Any) -> dict[str, Any]:
    given = {
        "group_id": "g", "scope": "orders", "epoch": "e", "region": "0", "position": 5, "metadata": "m",
        "target_scope": "copy", "target_region": "0", "target_position": 7, "outcome": "moved", "offsets": 0,
    }  # fmt: skip
    return given | values


def group(active: bool, positions: dict[tuple[str, str], int], name: str = "g") -> GroupState:
    """A group of the target."""
    offsets = tuple(Committed(*place, position) for place, position in positions.items())
    return GroupState(name, "classic", "stable" if active else "empty", int(active), offsets)


def restored(scope: str, target: str, epoch: str) -> dict[str, str]:
    return {"scope": scope, "target_scope": target, "target_epoch": epoch}


@pytest.mark.parametrize(
    ("there", "force", "outcome"),
    [
        (None, False, "moved"),
        (group(False, {}), False, "moved"),
        (group(False, {("copy", "0"): 7}), False, "unchanged"),
        (group(True, {("copy", "0"): 7}), False, "unchanged"),
        (group(True, {("copy", "0"): 6}), False, "active"),
        (group(True, {}), True, "active"),
        (group(False, {("copy", "0"): 6}), False, "moved"),
        (group(False, {("copy", "0"): 8}), False, "ahead"),
        (group(False, {("copy", "0"): 8}), True, "moved"),
        (group(False, {("copy", "1"): 8, ("orders", "0"): 9}), False, "moved"),
    ],
)
def test_what_the_target_says(there: GroupState | None, force: bool, outcome: str) -> None:
    plan = plan_groups([row()], {"g": "g"}, {"g": there} if there else {}, force=force)
    assert [m.outcome for m in plan.moves] == [outcome]
    wanted = [Committed("copy", "0", 7, metadata="m")] if outcome == "moved" else []
    assert [landing for _, landing in plan.put] == wanted
    assert [m.outcome for m in plan.failed] == (["active"] if outcome == "active" else [])
    assert outcome in groups.MEANINGS


@pytest.mark.parametrize("outcome", ["unknown", "not_restored", "topic_deleted"])
def test_what_cannot_be_placed_is_left_alone(outcome: str) -> None:
    plan = plan_groups([row(outcome=outcome, target_position=None)], {"g": "g"}, {})
    assert (plan.put, plan.counts()) == ((), {outcome: 1})
    assert bool(plan.failed) == (outcome == "unknown")


def test_only_chosen_groups_under_their_new_names_in_order() -> None:
    rows = [
        row(region="10"),
        row(region="2"),
        row(group_id="other"),
        row(outcome="at_end", offsets=3, scope="a"),
    ]
    plan = plan_groups(rows, {"g": "h"}, {"h": group(False, {("copy", "0"): 7}, "h")})
    assert [(m.scope, m.region, m.target_group, m.outcome) for m in plan.moves] == [
        ("a", "0", "h", "unchanged"), ("orders", "2", "h", "unchanged"), ("orders", "10", "h", "unchanged"),
    ]  # fmt: skip
    assert plan.moves[0].offsets == 3


def test_a_deleted_topics_offset_does_not_count_beside_one_that_can_be_placed() -> None:
    gone = row(outcome="topic_deleted", epoch=None)
    assert plan_groups([gone, row()], {"g": "g"}, {}).counts() == {"moved": 1}
    assert plan_groups([gone], {"g": "g"}, {}).counts() == {"topic_deleted": 1}


def test_topics_that_answer_for_others() -> None:
    there = {"orders": "t1", "copy": "t2", "new": "t9"}
    one = [restored("orders", "copy", "t2"), restored("orders", "new", "t3")]
    assert groups.choose_targets(one, there, {}) == ({"orders": "t2"}, {}), "new was made again since"
    two = [restored("orders", "copy", "t2"), restored("orders", "orders", "t1")]
    assert groups.choose_targets(two, there, {}) == ({"orders": "t1"}, {})
    assert groups.choose_targets(two, there, {"orders": "copy"}) == ({"orders": "t2"}, {})
    three = [restored("a", "copy", "t2"), restored("a", "new", "t9")]
    # Only groups that use the topic are concerned.
    chosen, unclear = groups.choose_targets([*one, *three], there, {})
    assert chosen == {"orders": "t2"}
    with pytest.raises(UsageProblem, match="several topics: copy, new"):
        raise unclear["a"]
    _, unclear = groups.choose_targets(three, there, {"a": "orders"})
    with pytest.raises(NotFound, match="was restored into orders"):
        raise unclear["a"]
