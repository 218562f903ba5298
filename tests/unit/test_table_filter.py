from __future__ import annotations

import pytest

from lakebackup.changelog.table_filter import TableFilter
from lakebackup.errors import UsageProblem


@pytest.mark.parametrize(
    ("expressions", "taken", "left"),
    [
        ([], ["shop.orders", "mysql.user"], []),
        (["shop.*"], ["shop.orders"], ["myshop.orders", "mysql.user"]),
        (["!mysql.*"], ["shop.orders"], ["mysql.user"]),
        ([".*", "!mysql.*", "!shop.tmp_.*"], ["shop.orders"], ["mysql.user", "shop.tmp_1"]),
        (["a.t", "b.t"], ["a.t", "b.t"], ["a.t2", "c.t"]),
    ],
)
def test_which_tables_are_meant(expressions: list[str], taken: list[str], left: list[str]) -> None:
    found = TableFilter(expressions)
    tables = [tuple(name.split(".")) for name in taken + left]
    assert [f"{db}.{name}" for db, name in tables if found.takes(db, name)] == taken


def test_an_expression_that_is_none_is_told_with_its_place() -> None:
    with pytest.raises(UsageProblem, match=r"position 0"):
        TableFilter(["*.*"])
