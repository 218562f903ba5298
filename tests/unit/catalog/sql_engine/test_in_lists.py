"""Lists in one parameter, as Spark gets them."""

from __future__ import annotations

from lakebackup.sql_engine.spark import in_lists

ASKED = "SELECT 1 FROM files AS f WHERE ARRAY_CONTAINS(SPLIT(:scopes, ','), f.scope) AND source = :source"


def test_each_name_is_a_parameter_of_its_own() -> None:
    text, given = in_lists(ASKED, {"scopes": "orders,o'1", "source": "prod"})
    assert text == "SELECT 1 FROM files AS f WHERE f.scope IN (:scopes_0, :scopes_1) AND source = :source"
    assert given == {"scopes": "orders,o'1", "source": "prod", "scopes_0": "orders", "scopes_1": "o'1"}


def test_no_list_stays_as_it_is() -> None:
    assert in_lists(ASKED, {"scopes": None, "source": "prod"}) == (ASKED, {"scopes": None, "source": "prod"})
