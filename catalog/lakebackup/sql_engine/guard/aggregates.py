"""Rewrites aggregates, windows and set operations whose value or type on DuckDB differs from Spark's."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import UnsupportedError
from sqlglot.optimizer.annotate_types import annotate_types

from lakebackup.sql_engine.guard.calls import macro

# DuckDB's functions for max_by and min_by. Unlike arg_max and arg_min they return the row's value also if it
# is NULL, as Spark does.
ARG_MAX_MIN = ("arg_max_null", "arg_min_null")
_RANKINGS = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile)
_PERCENTILES = (exp.PercentileCont, exp.PercentileDisc)
_TEXTS = frozenset({"TEXT", "VARCHAR"})
# Types that leave open whether a column of a set operation is a text.
_UNKNOWN = frozenset({"UNKNOWN", "NULL", "USERDEFINED"})


def aggregate(node: exp.Expr) -> exp.Expr | None:
    """Rewrite a node so that it has the same meaning on DuckDB. Return the expression to put in its place.

    None if nothing replaces the node, because it was changed in place or needs no change. Raises
    UnsupportedError for a node that only Spark can compute.
    """
    if isinstance(node, exp.Window) and isinstance(node.this, _RANKINGS):
        return exp.cast(node.copy(), "int")
    if isinstance(node, exp.CountIf):  # DuckDB's result is a HUGEINT
        is_distinct = isinstance(node.this, exp.Distinct)
        condition = node.this.expressions[0] if is_distinct else node.this
        met = exp.Case(ifs=[exp.If(this=condition, true=exp.Literal.number(1))])
        return exp.Count(this=exp.Distinct(expressions=[met]) if is_distinct else met)
    if isinstance(node, (exp.ArgMax, exp.ArgMin)):
        name = ARG_MAX_MIN[isinstance(node, exp.ArgMin)]
        return exp.func(name, node.this, node.expression)
    if isinstance(node, exp.Corr):  # the engines differ for a single pair
        return macro("corr", node.this, node.expression)
    if change := _CHANGES.get(type(node)):
        change(node)
    return None


def _cast_to_double(node: exp.Expr) -> None:
    """Cast the argument to DOUBLE: on Spark the result is a DOUBLE for numbers of any type."""
    node.set("this", exp.cast(node.this, "double"))


def _cast_ordered_to_double(node: exp.Expr) -> None:
    """Cast what WITHIN GROUP orders by to DOUBLE, if the aggregate is a percentile."""
    if isinstance(node.this, _PERCENTILES):
        for ordered in node.expression.find_all(exp.Ordered):
            _cast_to_double(ordered)


def _check_average(node: exp.Expr) -> None:
    """Refuse an average of DECIMALs when the query runs: only Spark knows the digits of the result."""
    if isinstance(node.this, exp.Distinct):
        (number,) = node.this.expressions
        number.replace(macro("no_decimal", number.copy()))
    else:
        node.set("this", macro("no_decimal", node.this))


def _wrap(wrapped: Callable[[exp.Expr], exp.Expr]) -> Callable[[exp.Expr], None]:
    """Return a function that puts an aggregate, with its FILTER and its window, into another expression."""

    def change(node: exp.Expr) -> None:
        while isinstance(node.parent, (exp.Filter, exp.Window)) and node.arg_key == "this":
            node = node.parent
        node.replace(wrapped(node.copy()))

    return change


def _check_set_operation(node: exp.Expr) -> None:
    """Refuse a set operation of a text with another type: Spark converts the text, DuckDB the other value.

    If the type of one of the two columns is known only when the query runs, that column gets a check, which
    makes the query fail then.
    """
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
                _check_column(column, "text_alone" if any(is_text) else "no_text")


def _check_column(column: exp.Expr, check: str) -> None:
    """Wrap a column in the macro `check`. The column keeps its name."""
    checked = macro(check, column.copy())
    is_named = isinstance(column.parent, exp.Alias) or not column.name
    column.replace(checked if is_named else exp.alias_(checked, column.name))


def _first_select(node: exp.Expr) -> exp.Expr:
    while isinstance(node, (exp.Subquery, exp.SetOperation)):
        node = node.this
    return node


# Types of nodes, with the function that changes such a node in place.
_CHANGES: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Avg: _check_average,
    exp.Except: _check_set_operation,
    exp.Grouping: _wrap(lambda call: exp.cast(call, "tinyint")),
    exp.Intersect: _check_set_operation,
    exp.Median: _cast_to_double,
    exp.Quantile: _cast_to_double,
    exp.RegrCount: _wrap(lambda call: exp.cast(call, "bigint")),
    exp.Sum: _wrap(lambda call: macro("total", call)),  # DuckDB's sum has a wider type than BIGINT
    exp.Union: _check_set_operation,
    exp.WithinGroup: _cast_ordered_to_double,
}
