"""Consumer groups at the target: their names, the topics that stand in for others, and the outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.topics import groups
from lakebackup.plan.topics.groups import Committed, GroupState, plan_groups


def row(**values: Any) -> dict[str, Any]:
    columns = {
        "group_id": "g", "scope": "orders", "epoch": "e", "region": "0", "position": 5, "metadata": "m",
        "target_scope": "copy", "target_region": "0", "target_position": 7, "outcome": "moved", "offsets": 0,
    }  # fmt: skip
    return columns | values


def group(active: bool, positions: dict[tuple[str, str], int], name: str = "g") -> GroupState:
    """A group of the target."""
    offsets = tuple(Committed(*partition, position) for partition, position in positions.items())
    return GroupState(name, "classic", "stable" if active else "empty", int(active), offsets)


def restored_topic(scope: str, target: str, epoch: str) -> dict[str, str]:
    return {"scope": scope, "target_scope": target, "target_epoch": epoch}


@pytest.mark.parametrize(
    ("target_group", "force", "outcome"),
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
def test_the_group_at_the_target_decides_the_outcome(
    target_group: GroupState | None, force: bool, outcome: str
) -> None:
    plan = plan_groups([row()], {"g": "g"}, {"g": target_group} if target_group else {}, force=force)
    assert [m.outcome for m in plan.moves] == [outcome]
    expected = [Committed("copy", "0", 7, metadata="m")] if outcome == "moved" else []
    assert [landing for _, landing in plan.offsets_to_set] == expected
    assert [m.outcome for m in plan.failed] == (["active"] if outcome == "active" else [])
    assert outcome in groups.MEANINGS


@pytest.mark.parametrize("outcome", ["unknown", "not_restored", "topic_deleted"])
def test_offsets_that_cannot_be_placed_are_left_alone(outcome: str) -> None:
    plan = plan_groups([row(outcome=outcome, target_position=None)], {"g": "g"}, {})
    assert (plan.offsets_to_set, plan.counts()) == ((), {outcome: 1})
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
    deleted_row = row(outcome="topic_deleted", epoch=None)
    assert plan_groups([deleted_row, row()], {"g": "g"}, {}).counts() == {"moved": 1}
    assert plan_groups([deleted_row], {"g": "g"}, {}).counts() == {"topic_deleted": 1}


def test_the_topic_that_stands_in_for_a_restored_one() -> None:
    target_epochs = {"orders": "t1", "copy": "t2", "new": "t9"}
    first_restores = [restored_topic("orders", "copy", "t2"), restored_topic("orders", "new", "t3")]
    assert groups.choose_targets(first_restores, target_epochs, {}) == ({"orders": "t2"}, {}), (
        "new was made again since"
    )
    second_restores = [restored_topic("orders", "copy", "t2"), restored_topic("orders", "orders", "t1")]
    assert groups.choose_targets(second_restores, target_epochs, {}) == ({"orders": "t1"}, {})
    assert groups.choose_targets(second_restores, target_epochs, {"orders": "copy"}) == ({"orders": "t2"}, {})
    third_restores = [restored_topic("a", "copy", "t2"), restored_topic("a", "new", "t9")]
    # Only groups that use the topic are concerned.
    targets, unclear = groups.choose_targets([*first_restores, *third_restores], target_epochs, {})
    assert targets == {"orders": "t2"}
    with pytest.raises(UsageProblem, match="several topics: copy, new"):
        raise unclear["a"]
    _, unclear = groups.choose_targets(third_restores, target_epochs, {"a": "orders"})
    with pytest.raises(NotFound, match="was restored into orders"):
        raise unclear["a"]
