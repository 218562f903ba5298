from __future__ import annotations

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.formats.logs.table_filter import TableFilter


@pytest.mark.parametrize(
    ("rules", "taken", "left"),
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
def test_which_tables_are_meant(rules: list[str], taken: list[str], left: list[str]) -> None:
    found = TableFilter(rules)
    tables = [name.split(".", 1) for name in taken + left]
    assert [f"{db}.{name}" for db, name in tables if found.takes(db, name)] == taken


@pytest.mark.parametrize("rule", ["orders", "", "!", ".", "shop.", ".orders", "!shop"])
def test_a_rule_that_is_none_is_reported(rule: str) -> None:
    with pytest.raises(UsageProblem, match="says no tables"):
        TableFilter(["*.*", rule])
