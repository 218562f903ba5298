"""A list in one parameter becomes a parameter for each name, for Spark."""

from __future__ import annotations

from lakebackup.sql_engine.spark import in_lists

QUERY = "SELECT 1 FROM files AS f WHERE ARRAY_CONTAINS(SPLIT(:scopes, ','), f.scope) AND source = :source"


def test_each_name_is_a_parameter_of_its_own() -> None:
    text, parameters = in_lists(QUERY, {"scopes": "orders,o'1", "source": "prod"})
    assert text == "SELECT 1 FROM files AS f WHERE f.scope IN (:scopes_0, :scopes_1) AND source = :source"
    assert parameters == {"scopes": "orders,o'1", "source": "prod", "scopes_0": "orders", "scopes_1": "o'1"}


def test_an_absent_list_is_unchanged() -> None:
    assert in_lists(QUERY, {"scopes": None, "source": "prod"}) == (QUERY, {"scopes": None, "source": "prod"})
