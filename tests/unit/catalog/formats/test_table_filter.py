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


@pytest.mark.parametrize("rule", ["orders", "", "!", ".", "shop.", ".orders", "!shop"])
def test_an_invalid_rule_is_reported(rule: str) -> None:
    with pytest.raises(UsageProblem, match="is no rule for tables"):
        TableFilter(["*.*", rule])
