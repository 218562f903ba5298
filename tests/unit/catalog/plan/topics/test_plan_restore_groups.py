"""Names of groups, topics that answer for others, and outcomes that the target decides."""

from __future__ import annotations

from typing import Any

import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.topics import groups
from lakebackup.plan.topics.groups import GroupThere, Landing, plan_groups, select_groups


def row(**values: Any) -> dict[str, Any]:
    given = {
        "group_id": "g", "scope": "orders", "epoch": "e", "region": "0", "position": 5, "metadata": "m",
        "target_scope": "copy", "target_region": "0", "target_position": 7, "outcome": "moved", "offsets": 0,
    }  # fmt: skip
    return given | values


def restored(scope: str, target: str, epoch: str) -> dict[str, str]:
    return {"scope": scope, "target_scope": target, "target_epoch": epoch}


@pytest.mark.parametrize(
    ("there", "force", "outcome"),
    [
        (None, False, "moved"),
        (GroupThere(False, {}), False, "moved"),
        (GroupThere(False, {("copy", "0"): 7}), False, "unchanged"),
        (GroupThere(True, {("copy", "0"): 7}), False, "unchanged"),
        (GroupThere(True, {("copy", "0"): 6}), False, "active"),
        (GroupThere(True, {}), True, "active"),
        (GroupThere(False, {("copy", "0"): 6}), False, "moved"),
        (GroupThere(False, {("copy", "0"): 8}), False, "ahead"),
        (GroupThere(False, {("copy", "0"): 8}), True, "moved"),
        (GroupThere(False, {("copy", "1"): 8, ("orders", "0"): 9}), False, "moved"),
    ],
)
def test_what_the_target_says(there: GroupThere | None, force: bool, outcome: str) -> None:
    plan = plan_groups([row()], {"g": "g"}, {"g": there} if there else {}, force=force)
    assert [m.outcome for m in plan.moves] == [outcome]
    assert [landing for _, landing in plan.put] == ([Landing("copy", "0", 7)] if outcome == "moved" else [])
    assert [m.outcome for m in plan.short] == (["active"] if outcome == "active" else [])
    assert outcome in groups.MEANINGS


@pytest.mark.parametrize("outcome", ["unknown", "not_restored", "topic_deleted"])
def test_what_cannot_be_placed_is_left_alone(outcome: str) -> None:
    plan = plan_groups([row(outcome=outcome, target_position=None)], {"g": "g"}, {})
    assert (plan.put, plan.counts()) == ((), {outcome: 1})
    assert bool(plan.short) == (outcome == "unknown")


def test_only_chosen_groups_under_their_new_names_in_order() -> None:
    rows = [
        row(region="10"),
        row(region="2"),
        row(group_id="other"),
        row(outcome="at_end", offsets=3, scope="a"),
    ]
    plan = plan_groups(rows, {"g": "h"}, {"h": GroupThere(False, {("copy", "0"): 7})})
    assert [(m.scope, m.region, m.target_group, m.outcome) for m in plan.moves] == [
        ("a", "0", "h", "unchanged"), ("orders", "2", "h", "unchanged"), ("orders", "10", "h", "unchanged"),
    ]  # fmt: skip
    assert plan.moves[0].offsets == 3


def test_a_deleted_topics_offset_does_not_count_beside_one_that_can_be_placed() -> None:
    gone = row(outcome="topic_deleted", epoch=None)
    assert plan_groups([gone, row()], {"g": "g"}, {}).counts() == {"moved": 1}
    assert plan_groups([gone], {"g": "g"}, {}).counts() == {"topic_deleted": 1}


def test_groups_by_name_and_pattern() -> None:
    known = ["billing", "billing-2", "mail"]
    assert select_groups(["mail"], ["bill.*"], known) == ["billing", "billing-2", "mail"]
    assert select_groups([], ["billing"], known) == ["billing"]
    with pytest.raises(UsageProblem, match="No consumer group was named"):
        select_groups([], [], known)
    with pytest.raises(UsageProblem, match="not a regular expression"):
        select_groups([], ["("], known)
    with pytest.raises(NotFound, match="knows consumer group 'bilin'") as error:
        select_groups(["bilin"], [], known)
    assert "billing" in error.value.hint
    with pytest.raises(NotFound, match="No consumer group matches 'x'"):
        select_groups([], ["x"], known)
    with pytest.raises(NotFound) as error:
        select_groups(["x"], [], [])
    assert "--groups none" in error.value.hint


def test_group_maps() -> None:
    assert groups.parse_group_maps(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    for wrong in (["a"], ["=b"], ["a="], ["a=b", "a=c"], ["a=c", "b=c"]):
        with pytest.raises(UsageProblem, match="--map-group"):
            groups.parse_group_maps(wrong)
    assert groups.group_names(["a", "b"], {"a": "x"}) == {"a": "x", "b": "b"}
    with pytest.raises(UsageProblem, match="not among the groups"):
        groups.group_names(["b"], {"a": "x"})
    with pytest.raises(UsageProblem, match="would become b"):
        groups.group_names(["a", "b"], {"a": "b"})


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
