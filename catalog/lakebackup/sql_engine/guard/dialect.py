"""Spark's SQL as both engines run it: what sqlglot would translate with another meaning is written here.

Of some functions sqlglot's own tree says less than the text, so they stay calls by name. On DuckDB they are
macros.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.transforms import eliminate_qualify

from lakebackup.sql_engine.guard.macros import MACROS, OTHER

_BY_NAME_TEXT = """
    DATE_ADD DATEDIFF DATE_DIFF TO_UTC_TIMESTAMP SOUNDEX TO_CHAR PARSE_URL TO_NUMBER ARRAY_DISTINCT
    DATE_SUB DATE_FROM_UNIX_DATE DAYOFWEEK DAY_OF_WEEK DAYNAME MONTHNAME TRUNC UNIX_SECONDS
    UNIX_TIMESTAMP TO_UNIX_TIMESTAMP ANY SOME EVERY EXISTS LOCALTIMESTAMP FORMAT_STRING PERCENTILE_CONT
    PERCENTILE_DISC URL_ENCODE MAP_CONTAINS_KEY BIT_GET GETBIT TRY_ADD TRY_SUBTRACT TRY_MULTIPLY
    FROM_UTC_TIMESTAMP OCTET_LENGTH FROM_JSON TYPEOF UUID UNBASE64 UNHEX
"""
_BY_NAME = frozenset(_BY_NAME_TEXT.split())


_NAMED = (exp.Alias, exp.Aliases, exp.Column, exp.Dot)
#: Functions that make several columns or name them.
_SEVERAL = (exp.UDTF, exp.Explode, exp.Inline, exp.Columns)
_LONGEST_NAME = 60
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Between, exp.In)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*[+-]\d\d(:?\d\d)?$")
_DATES = (exp.AddMonths, exp.CurrentDate, exp.LastDay, exp.NextDay, exp.StrToDate, exp.TsOrDsToDate)
_DATES_BY_NAME = frozenset({"date_add", "date_from_unix_date", "date_sub", "make_date", "trunc"})
_DAYS = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})
_OTHERS = frozenset(macro.partition("(")[0] for macro in MACROS)


class Asked(Spark):
    """Spark's dialect for what people write."""

    class Parser(SparkParser):
        FUNCTIONS = {name: made for name, made in SparkParser.FUNCTIONS.items() if name not in _BY_NAME}  # noqa: RUF012


def named(tree: exp.Expr) -> None:
    """Give the columns that have no name one made of their own words: sum_bytes for sum(bytes).

    Each engine would invent another. A name that the text has already would change what that means, so it
    gets an underscore.
    """
    written = {name.name.lower() for name in tree.find_all(exp.Identifier)}
    for select in list(tree.find_all(exp.Select)):
        taken = set(written)
        for one in select.expressions:
            if isinstance(one, _NAMED) or one.is_star or one.find(*_SEVERAL):
                continue
            words = re.sub(r"\W+", "_", one.sql(dialect=Asked, comments=False).lower(), flags=re.ASCII)
            name = words[:_LONGEST_NAME].strip("_") or "value"
            name = f"_{name}" if name[0].isdigit() else name
            while name in taken:
                name += "_"
            taken.add(name)
            one.replace(exp.alias_(one.copy(), name))


def for_spark(tree: exp.Expr) -> exp.Expr:
    """A copy of the tree without QUALIFY, which Spark does not know; a unit of time stays a word."""
    tree = tree.copy()
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() in ("datediff", "date_diff", "date_add") and len(call.expressions) == 3:
            unit = call.expressions[0]
            unit.replace(exp.var(unit.name))
    for select in reversed(list(tree.find_all(exp.Select))):
        if not select.args.get("qualify"):
            continue
        shown = {one.alias_or_name for one in select.expressions}
        whole = eliminate_qualify(select.copy())
        inner = whole.find(exp.Subquery)
        helpers = (
            [one.alias for one in inner.this.expressions if one.alias and one.alias not in shown]
            if inner
            else []
        )
        for star in whole.expressions:
            if isinstance(star, exp.Star):
                star.set("except_", [exp.to_identifier(name) for name in helpers])
        if select is tree:
            return whole
        select.replace(whole)
    return tree


def for_duckdb(tree: exp.Expr) -> exp.Expr:
    """A copy of the tree with the same meaning on DuckDB."""
    tree = tree.copy()
    for view in tree.find_all(exp.Lateral):
        if view.args.get("outer") and is_explode(view):  # DuckDB leaves out rows without elements
            rows = view.this.this
            some = exp.GT(this=exp.func("len", rows.copy()), expression=exp.Literal.number(0))
            none = exp.Array(expressions=[exp.null()])
            rows.replace(exp.Case(ifs=[exp.If(this=some, true=rows.copy())], default=none))
    for node in reversed(list(tree.walk())):
        made = _with_type(node) or _on_duckdb(node)
        if made is not None:
            node.replace(made)
    return tree


def _with_type(node: exp.Expr) -> exp.Expr | None:
    """What DuckDB would take for something of another type."""
    if isinstance(node, exp.Literal) and _is_instant(node):  # it would leave out the offset
        return exp.cast(node.copy(), "timestamptz")
    if isinstance(node, (exp.Add, exp.Sub)) and _is_date(node):  # which becomes a timestamp
        return exp.cast(node.copy(), "date")
    return None


def _on_duckdb(node: exp.Expr) -> exp.Expr | None:
    if isinstance(
        node, exp.JSONExtractScalar
    ):  # which fails where Spark gives NULL for a text that is no JSON
        valid = exp.func("json_valid", node.this.copy())
        return exp.Case(ifs=[exp.If(this=valid, true=node.copy())])
    if isinstance(node, exp.TsOrDsAdd) and not node.args.get("unit"):
        return exp.func(f"{OTHER}date_add", node.this, node.expression)
    if isinstance(node, exp.Quantile):
        return exp.func("quantile_cont", node.this, node.args["quantile"])
    if isinstance(node, exp.TimestampDiff) or (isinstance(node, exp.DateDiff) and node.args.get("unit")):
        return exp.func("datesub", exp.Literal.string(node.args["unit"].name), node.expression, node.this)
    if isinstance(node, exp.RegexpReplace):
        replacement = node.args.get("replacement")
        if isinstance(replacement, exp.Literal) and "$" in replacement.name:
            replacement.replace(exp.Literal.string(replacement.name.replace("$", "\\")))
        return None
    if isinstance(node, exp.Replace) and not node.args.get("replacement"):
        node.set("replacement", exp.Literal.string(""))
        return None
    if isinstance(node, exp.Table) and isinstance(
        node.this, exp.Anonymous
    ):  # range, whose column is id on Spark
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier("range"))
        if not alias.columns:
            alias.set("columns", [exp.to_identifier("id")])
        node.set("alias", alias)
        return None
    if isinstance(node, exp.Any) and not isinstance(node.parent, exp.Binary):
        return exp.func("bool_or", node.this.unnest())
    return _by_name(node) if isinstance(node, exp.Anonymous) else None


def is_explode(view: exp.Lateral) -> bool:
    """Whether it makes a row of each element of a list, and no more of it."""
    return type(view.this) is exp.Explode


def _is_instant(node: exp.Literal) -> bool:
    """Whether it is a text with a time and an offset from UTC, compared with a column of times."""
    whole = node.parent
    if not node.is_string or not _INSTANT.match(node.name) or not isinstance(whole, _COMPARED):
        return False
    others = [one for one in (whole.this, whole.expression) if isinstance(one, exp.Column)]
    return any(one.name.lower() == "time" or one.name.lower().endswith("_time") for one in others)


def _is_date(node: exp.Expr) -> bool:
    """Whether it is a date, or one and whole days, as far as the text tells."""
    if isinstance(node, exp.Paren):
        return _is_date(node.this)
    if isinstance(node, (exp.Add, exp.Sub)):
        pairs = [(node.this, node.expression), (node.expression, node.this)]
        return any(
            isinstance(interval, exp.Interval)
            and interval.text("unit").upper().removesuffix("S") in _DAYS
            and _is_date(date)
            for date, interval in pairs
        )
    if isinstance(node, exp.Anonymous):
        return node.name.lower().removeprefix(OTHER) in _DATES_BY_NAME
    return isinstance(node, _DATES) or (isinstance(node, exp.Cast) and node.to.is_type("date"))


def _by_name(node: exp.Anonymous) -> exp.Expr | None:
    name, given = node.name.lower(), node.expressions
    if name in ("datediff", "date_diff") and len(given) == 3:
        return exp.func("datesub", exp.Literal.string(given[0].name), *given[1:])
    if name == "date_add" and len(given) == 3:
        added = exp.Interval(this=exp.paren(given[1]), unit=exp.var(given[0].name))
        return exp.paren(exp.Add(this=exp.cast(given[2], "timestamp"), expression=added))
    if f"{OTHER}{name}" in _OTHERS:
        node.set("this", f"{OTHER}{name}")
        return None
    if name in ("any", "some", "every") and len(given) == 1:
        return exp.func("bool_and" if name == "every" else "bool_or", *given)
    if name in ("exists", "forall") and len(given) == 2:
        found = exp.func("len", exp.func("list_filter", *given))
        return exp.Paren(
            this=exp.EQ(this=found, expression=exp.func("len", given[0].copy()))
            if name == "forall"
            else exp.GT(this=found, expression=exp.Literal.number(0))
        )
    if name in ("bigint", "tinyint", "smallint") and len(given) == 1:
        return exp.cast(given[0], name)
    if name == "isnull" and len(given) == 1:
        return exp.Paren(this=exp.Is(this=given[0], expression=exp.Null()))
    if name in ("percentile_cont", "percentile_disc") and isinstance(node.parent, exp.WithinGroup):
        return (exp.PercentileCont if name == "percentile_cont" else exp.PercentileDisc)(this=given[0])
    return None
