from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.rules.patterns import GROUP, check_topic_name, parse_maps, select, target_names

EXISTING = ["orders", "payments", "app.one", "app.two", "appendix", "__consumer_offsets", "_schemas"]


@pytest.mark.parametrize(
    ("names", "patterns", "expected"),
    [
        (["payments", "orders", "orders"], [], ["orders", "payments"]),
        ([], [r"app\..*"], ["app.one", "app.two"]),
        ([], ["app"], None),  # the whole name must match
        (["orders"], [r"app\.one"], ["app.one", "orders"]),
        ([], [".*"], ["_schemas", "app.one", "app.two", "appendix", "orders", "payments"]),
        ([], ["__.*"], None),  # internal topics only by name
        (["__consumer_offsets"], [], ["__consumer_offsets"]),
        (["orders"], ["nothing"], ["orders"]),
        ([], ["orders|payments"], ["orders", "payments"]),
    ],
)
def test_topics_are_selected_by_names_and_patterns(
    names: list[str], patterns: list[str], expected: list[str] | None
) -> None:
    if expected is None:
        with pytest.raises(NotFound, match="No topic matches"):
            select(names, patterns, EXISTING)
    else:
        assert select(names, patterns, EXISTING) == expected


def test_a_missing_topic_is_reported_with_similar_names() -> None:
    with pytest.raises(NotFound, match="'ordres' does not exist") as missing:
        select(["ordres"], [".*"], EXISTING)
    assert missing.value.hint.startswith("Did you mean orders")
    with pytest.raises(NotFound, match="'x', 'y' do not exist") as missing:
        select(["y", "x", "orders"], [], EXISTING)
    assert "__consumer_offsets" not in missing.value.hint


def test_an_empty_selection_is_refused() -> None:
    with pytest.raises(UsageProblem, match="No topic was named"):
        select([], [], EXISTING)


def test_the_error_in_an_expression_is_pointed_at() -> None:
    with pytest.raises(UsageProblem, match="position 4") as bad:
        select([], ["app.(one"], EXISTING)
    assert "\n  app.(one\n      ^" in bad.value.message


@given(st.sets(st.from_regex(r"[a-z._-]{1,6}", fullmatch=True)))
def test_selection_is_sorted_existing_and_not_internal(existing: set[str]) -> None:
    visible = sorted(topic for topic in existing if not topic.startswith("__"))
    if visible:
        assert select([], [".*"], existing) == visible
        assert select(visible, [], existing) == visible


def test_maps_give_new_names() -> None:
    assert parse_maps([]) == {}
    assert parse_maps(["a=b", "c = d", "a=b"]) == {"a": "b", "c": "d"}
    assert target_names(["a", "x"], {"a": "b"}) == {"a": "b", "x": "x"}
    assert target_names(["a", "b"], {"a": "b", "b": "a"}) == {"a": "b", "b": "a"}


@pytest.mark.parametrize(
    ("maps", "complaint"),
    [
        (["a"], "form OLD=NEW"),
        (["=b"], "form OLD=NEW"),
        (["a="], "form OLD=NEW"),
        (["a=b=c"], "not a valid topic name"),
        (["a=b/c"], "not a valid topic name"),
        (["a=.."], "not a valid topic name"),
        (["a=b", "a=c"], "two new names"),
        (["a=c", "b=c"], "both be restored as 'c'"),
    ],
)
def test_invalid_maps_are_refused(maps: list[str], complaint: str) -> None:
    with pytest.raises(UsageProblem, match=complaint):
        parse_maps(maps)


def test_two_topics_cannot_have_one_new_name() -> None:
    with pytest.raises(UsageProblem, match="both be restored as 'b'"):
        target_names(["a", "b"], {"a": "b"})


def test_a_map_for_a_topic_that_is_not_restored_is_refused() -> None:
    with pytest.raises(UsageProblem, match="'ordres'") as idle:
        target_names(["orders"], {"ordres": "b"})
    assert "orders" in idle.value.hint


@pytest.mark.parametrize("name", ["", "é", "a b", "a" * 250, ".", "..", "a/b", "a+b", "a\n"])
def test_topic_names_that_kafka_refuses(name: str) -> None:
    with pytest.raises(UsageProblem):
        check_topic_name(name)


def test_consumer_groups_are_chosen_and_named_as_topics_are() -> None:
    groups = ["__own", "billing", "billing-2", "mail"]
    assert select(["mail"], ["bill.*", "__.*"], groups, kind=GROUP) == groups
    with pytest.raises(UsageProblem, match="No consumer group was named"):
        select([], [], groups, kind=GROUP)
    with pytest.raises(NotFound, match="Consumer group 'bilin' does not exist") as error:
        select(["bilin"], [], groups, kind=GROUP)
    assert "billing" in error.value.hint
    with pytest.raises(NotFound, match="No consumer group matches 'x'"):
        select([], ["x"], groups, kind=GROUP)
    with pytest.raises(NotFound) as error:
        select(["x"], [], [], kind=GROUP)
    assert "--groups none" in error.value.hint
    assert parse_maps(["a=b", "c=d=e"], kind=GROUP) == {"a": "b", "c": "d=e"}
    with pytest.raises(UsageProblem, match=r"--map-group names 'a'.* not among the consumer groups"):
        target_names(["b"], {"a": "x"}, kind=GROUP)
