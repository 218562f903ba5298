from __future__ import annotations

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.formats.logs.table_filter import TableFilter


@pytest.mark.parametrize(
    ("rules", "captured", "skipped"),
    [
        ([], ["shop.orders", "mysql.user"], []),
        (["*.*"], ["shop.orders", "mysql.user"], []),
        (["shop.*"], ["shop.orders", "shop.a.b"], ["myshop.orders", "shops.orders", "mysql.user"]),
        (["!mysql.*"], ["shop.orders"], ["mysql.user"]),
        (["*.*", "!mysql.*", "!shop.tmp_*"], ["shop.orders"], ["mysql.user", "shop.tmp_1"]),
        (["!mysql.*", "*.*"], ["mysql.user"], []),
        (["*.*", "!mysql.*", "mysql.user"], ["shop.orders", "mysql.user"], ["mysql.db"]),
        (["shop?.orders_[0-9]"], ["shop1.orders_7"], ["shop.orders_7", "shop1.orders_x"]),
        (["a.t", "b.t"], ["a.t", "b.t"], ["a.t2", "c.t"]),
    ],
)
def test_rules_select_tables(rules: list[str], captured: list[str], skipped: list[str]) -> None:
    table_filter = TableFilter(rules)
    tables = [name.split(".", 1) for name in captured + skipped]
    assert [f"{db}.{name}" for db, name in tables if table_filter.matches(db, name)] == captured


@pytest.mark.parametrize(
    ("rule", "db", "name"),
    [
        ("d.`s`.t", "d.s", "t"),
        ("d.s.`t.1`", "d.s", "t.1"),
        ("`d.1`.`s.1`.`t.1`", "`d.1`.`s.1`", "t.1"),
        ("d.s*.t", "d.`s.1`", "t"),
        ("`s.1`.t", "d.`s.1`", "t"),
        ("d.`a.b`", "d", "a.b"),
        ("d.`a``b`", "d", "a`b"),
    ],
)
def test_backquotes_keep_dots_within_every_part(rule: str, db: str, name: str) -> None:
    assert TableFilter([rule]).matches(db, name)
    assert not TableFilter([f"!{rule}"]).matches(db, name)


def test_a_database_without_schemas_may_have_a_dot() -> None:
    table_filter = TableFilter(["`my.db`.*"], has_schemas=False)
    assert table_filter.matches("my.db", "orders")
    assert not table_filter.matches("my", "orders")
    assert not TableFilter(["db.*"], has_schemas=False).matches("my.db", "orders")


@pytest.mark.parametrize("rule", ["orders", "", "!", ".", "shop.", ".orders", "!shop"])
def test_an_invalid_rule_is_reported(rule: str) -> None:
    with pytest.raises(UsageProblem, match="is no rule for tables"):
        TableFilter(["*.*", rule])
