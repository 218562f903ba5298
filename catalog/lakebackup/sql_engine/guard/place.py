"""Where in a person's SQL something is wrong: the line, and a caret below the place."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from lakebackup.errors import NeedsSpark, UsageProblem
from lakebackup.sql_engine.guard.macros import FOR_SPARK, OTHER

if TYPE_CHECKING:
    from sqlglot import exp

#: What to do about a SELECT that DuckDB cannot answer.
ON_SPARK = "Use --engine spark."
_AROUND = 60
# What engines add to their messages: their own text of the statement, plans, other functions.
_TAIL = re.compile(
    r"\s*(?:LINE \d+:|Candidate |If necessary set |SQLSTATE|; line \d+ pos|\n\n|\n\s*(?:'|\+-|==)).*",
    re.DOTALL,
)
_HEAD = re.compile(r"^(?:\w+ )*Error: |^\[[A-Z_.]+\] ")
_FAILED = re.compile(r"Could not convert string '(.*)' to BOOL$", re.DOTALL)
# What DuckDB neither casts nor reads as a time, nor knows as a zone, decimals that it has no digits for, and
# moments of what is infinite.
_MEANT_OTHERWISE = re.compile(
    r"Unimplemented type for cast|invalid (timestamp|date) field format|Unknown TimeZone|extract specifier|"
    r"Overflow in \w+ of DECIMAL|(SKEW|Kurtosis) is out of range"
)
# What a message names: in quotes, of which a function has its arguments' types too, or without.
_NAMED = re.compile(
    r"(?<!\w)(?P<quoted>([\"'`])(?P<inner>(?P<first>\w*).*?)\2)|(?:name|source column) (?P<name>\w+)"
)
_CAST = re.compile(r"\bcast\s*\([^()]*\)", re.IGNORECASE)


def wrong(
    sql: str,
    span: tuple[int, int] | None,
    message: str,
    hint: str = "",
    *,
    kind: type[UsageProblem] = UsageProblem,
) -> UsageProblem:
    """The error for what is between two places of `sql`, which it shows; None: of all."""
    return kind(message + (shown(sql, span) if span else ""), hint=hint)


def shown(sql: str, span: tuple[int, int]) -> str:
    """The line of a place (its first and last character), and a mark below."""
    start, end = max(0, min(span[0], len(sql))), span[1]
    first = max(sql.rfind("\n", 0, start), sql.rfind("\r", 0, start)) + 1
    last = min(at for at in (sql.find("\n", start), sql.find("\r", start), len(sql)) if at >= 0)
    left, right = max(first, start - _AROUND), min(last, max(start, end) + 1 + _AROUND, start + 2 * _AROUND)
    quoted = "".join(character if character.isprintable() else " " for character in sql[left:right])
    mark = " " * (start - left) + "^" * max(1, min(end + 1, right) - start)
    number = sql.count("\n", 0, start) + 1
    return f"\nline {number}: {quoted}\n{' ' * len(f'line {number}: ')}{mark}"


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """The first and the last character of a node in the text it was parsed from."""
    own = node.meta
    if "start" in own:
        return int(own["start"]), int(own["end"])
    found = [one.meta for one in node.walk() if "start" in one.meta]
    return (min(one["start"] for one in found), max(one["end"] for one in found)) if found else None


def place_of(sql: str, node: exp.Expr) -> tuple[int, int]:
    """The place of a node in `sql`: its own, else where its text is last, else that of what it is part of."""
    if span := span_of(node):
        return span
    # A path into JSON is a text, of which its parts have no text of their own.
    for dialect in () if type(node).__name__.startswith("JSONPath") else ("spark", None):
        written = node.sql(dialect=dialect, comments=False)
        at = sql.lower().rfind(written.lower())
        if written and at >= 0:
            return at, at + len(written) - 1
    return place_of(sql, node.parent) if node.parent else whole(sql)


def whole(sql: str) -> tuple[int, int]:
    """The place of what no smaller one is known of: the statement."""
    return len(sql) - len(sql.lstrip()), len(sql.rstrip()) - 1


def word(sql: str, name: str) -> tuple[int, int] | None:
    """The place of a name."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)
    return (found.start(), found.end() - 1) if found else None


def runs_on_spark(message: str) -> bool:
    """Whether DuckDB says by an error that it has no answer where Spark may have one."""
    return FOR_SPARK in message or bool(_MEANT_OTHERWISE.search(message))


def of_engine(sql: str, error: object, *, unbound: bool = False) -> UsageProblem:
    """What an engine has against a SELECT, at its place in the person's own text.

    `unbound`: DuckDB cannot run the SELECT at all, which Spark may.
    """
    text = str(error).replace(OTHER, "")
    message = _TAIL.sub("", _HEAD.sub("", text.strip()))[:400]
    if failed := _FAILED.match(message):  # a macro's own
        message = failed[1]
    named = (found.group("quoted", "inner", "first", "name") for found in _NAMED.finditer(message))
    span = next((place for name in chain(*named) if name and (place := word(sql, name))), None)
    if span is None and "convert" in message and (cast := _CAST.search(sql)):
        span = cast.start(), cast.end() - 1
    span = span or whole(sql)
    if unbound or runs_on_spark(message):
        message = message.replace(FOR_SPARK, "it needs Spark")
        return wrong(sql, span, f"The query cannot run on DuckDB: {message}", ON_SPARK, kind=NeedsSpark)
    return wrong(sql, span, f"The query cannot run: {message}")
