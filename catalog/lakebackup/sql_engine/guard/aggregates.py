"""Aggregates, windows and set operations for which DuckDB returns another value or type than Spark."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import UnsupportedError
from sqlglot.optimizer.annotate_types import annotate_types

from lakebackup.sql_engine.guard.calls import macro

# DuckDB's functions for max_by and min_by, which may return a NULL.
CHOICES = ("arg_max_null", "arg_min_null")
_RANKINGS = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile)
_PERCENTILES = (exp.PercentileCont, exp.PercentileDisc)
_TEXTS = frozenset({"TEXT", "VARCHAR"})
# Types that say nothing about whether a column of a set operation is a text.
_UNKNOWN = frozenset({"UNKNOWN", "NULL", "USERDEFINED"})


def aggregate(node: exp.Expr) -> exp.Expr | None:
    """Return the expression with the same meaning on DuckDB; None for a node that is no aggregate, or that
    was changed in place.

    Raises UnsupportedError.
    """
    if isinstance(node, exp.Window) and isinstance(node.this, _RANKINGS):
        return exp.cast(node.copy(), "int")
    if isinstance(node, exp.CountIf) and not isinstance(node.this, exp.Distinct):
        return exp.Count(this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]))
    if isinstance(node, (exp.ArgMax, exp.ArgMin)):  # the value that they return may be NULL
        name = CHOICES[isinstance(node, exp.ArgMin)]
        return exp.func(name, node.this, node.expression)
    if isinstance(node, exp.Corr):  # differs for a single pair
        return macro("corr", node.this, node.expression)
    if change := _CHANGES.get(type(node)):
        change(node)
    return None


def _of_double(node: exp.Expr) -> None:
    """Cast the argument to DOUBLE: on Spark the result is a DOUBLE for numbers of any type."""
    node.set("this", exp.cast(node.this, "double"))


def _of_doubles_in_order(node: exp.Expr) -> None:
    if isinstance(node.this, _PERCENTILES):
        for ordered in node.expression.find_all(exp.Ordered):
            _of_double(ordered)


def _check_average(node: exp.Expr) -> None:
    """Let an average of DECIMALs fail: on Spark it is a DECIMAL, whose digits only Spark knows."""
    if isinstance(node.this, exp.Distinct):
        (number,) = node.this.expressions
        number.replace(macro("no_decimal", number.copy()))
    else:
        node.set("this", macro("no_decimal", node.this))


def _around(wrapped: Callable[[exp.Expr], exp.Expr]) -> Callable[[exp.Expr], None]:
    """Return a change that wraps an aggregate together with its FILTER and its window."""

    def change(node: exp.Expr) -> None:
        while isinstance(node.parent, (exp.Filter, exp.Window)) and node.arg_key == "this":
            node = node.parent
        node.replace(wrapped(node.copy()))

    return change


def _unite(node: exp.Expr) -> None:
    """Let a text beside a number fail: Spark converts the text to a number, DuckDB the number to a text."""
    sides = [_first_select(side) for side in (node.this, node.expression)]
    for pair in zip(*(side.expressions for side in sides), strict=False):
        columns = [column.unalias() for column in pair]
        kinds = [annotate_types(column.copy()).type.this.name for column in columns]
        is_text = [kind in _TEXTS for kind in kinds]
        is_known = [kind not in _UNKNOWN for kind in kinds]
        if all(is_known) and is_text[0] != is_text[1]:
            raise UnsupportedError
        if is_known[0] != is_known[1]:
            column = columns[is_known.index(False)]
            if not column.is_star:
                _check_kind(column, "text_alone" if any(is_text) else "no_text")


def _check_kind(column: exp.Expr, check: str) -> None:
    checked = macro(check, column.copy())
    is_named = isinstance(column.parent, exp.Alias) or not column.name
    column.replace(checked if is_named else exp.alias_(checked, column.name))


def _first_select(node: exp.Expr) -> exp.Expr:
    while isinstance(node, (exp.Subquery, exp.SetOperation)):
        node = node.this
    return node


_CHANGES: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Avg: _check_average,
    exp.Except: _unite,
    exp.Grouping: _around(lambda call: exp.cast(call, "tinyint")),
    exp.Intersect: _unite,
    exp.Median: _of_double,
    exp.Quantile: _of_double,
    exp.RegrCount: _around(lambda call: exp.cast(call, "bigint")),
    exp.Sum: _around(lambda call: macro("total", call)),  # DuckDB's is wider than a BIGINT
    exp.Union: _unite,
    exp.WithinGroup: _of_doubles_in_order,
}
