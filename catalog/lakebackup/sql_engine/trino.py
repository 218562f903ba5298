"""Translate statements into Trino's dialect. sqlglot alone would lose digits, and call what Trino lacks."""

from __future__ import annotations

from sqlglot import ErrorLevel, exp, parse_one
from sqlglot.errors import UnsupportedError

# For times with a zone, for times without one.
_EPOCH_UTC = "TIMESTAMP '1970-01-01 00:00:00.000 UTC'"
_EPOCH = "TIMESTAMP '1970-01-01 00:00:00.000'"


def to_trino(text: str) -> str:
    """Translate a statement in Spark's dialect. Raises ValueError where Trino has no equivalent."""
    tree = parse_one(text, dialect="spark")
    # The innermost expressions come last in this order, and are replaced first.
    for node in reversed(list(tree.find_all(exp.Func, exp.IntDiv))):
        if replacement := _replacement(node):
            node.replace(replacement)
    try:
        return tree.sql(dialect="trino", pretty=True, comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise ValueError(str(error)) from error


def _replacement(node: exp.Expr) -> exp.Expr | None:
    """Return an expression that Trino computes exactly; None if sqlglot's translation does."""
    if isinstance(node, exp.IntDiv):
        # Trino divides integers as DIV does. sqlglot would divide doubles.
        return exp.Div(this=node.this, expression=node.expression, typed=True, safe=False)
    if isinstance(node, exp.ConcatWs):  # sqlglot does not know that all its arguments are texts
        return exp.Anonymous(this="CONCAT_WS", expressions=node.expressions)
    if isinstance(node, exp.UnixMillis):
        return _millis(node.this)
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if name == "timestamp_millis":
        return _filled(f"DATE_ADD('millisecond', argument, {_EPOCH})", node.expressions[0])
    if name == "timestamp_micros":
        # Trino adds no microseconds to a time.
        template = "CAST(FROM_UNIXTIME_NANOS(argument * 1000) AT TIME ZONE 'UTC' AS TIMESTAMP(6))"
        return _filled(template, exp.paren(node.expressions[0]))
    return None


def _millis(time: exp.Expr) -> exp.Expr:
    """Return the milliseconds from 1970 to a time, or to the local time that `CONVERT_TIMEZONE` returns."""
    local_time = time.this
    if not isinstance(local_time, exp.ConvertTimezone):
        return _filled(f"DATE_DIFF('millisecond', {_EPOCH_UTC}, argument)", time)
    zone = local_time.args["target_tz"]
    template = (
        f"DATE_DIFF('millisecond', {_EPOCH}, CAST(AT_TIMEZONE(WITH_TIMEZONE(argument, 'UTC'), {zone.sql()}) "
        "AS TIMESTAMP(3)))"
    )
    return _filled(template, local_time.args["timestamp"])


def _filled(template: str, argument: exp.Expr) -> exp.Expr:
    """Return an expression in Trino's dialect, with `argument` in the place of that name."""
    tree = parse_one(template, dialect="trino")
    for column in list(tree.find_all(exp.Column)):
        if column.name == "argument" and not column.table:
            column.replace(argument)
    return tree
