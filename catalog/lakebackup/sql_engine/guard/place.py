"""Errors that show where a person's SQL is wrong: the line, and a caret below the place.

A place is a span: the positions of its first and last characters in the SQL.
"""

from __future__ import annotations

import re
from itertools import chain

from sqlglot import exp

from lakebackup.errors import NeedsSpark, UsageProblem
from lakebackup.sql_engine.guard.macros import FOR_SPARK, PREFIX

#: What to do about a SELECT that DuckDB cannot answer.
ON_SPARK = "Use --engine spark."
_MARGIN = 60
# What engines append to their messages: the statement as they have it, plans, other functions.
_TAIL = re.compile(
    r"\s*(?:LINE \d+:|Candidate |If necessary set |SQLSTATE|; line \d+ pos|\n\n|\n\s*(?:'|\+-|==)).*",
    re.DOTALL,
)
_HEAD = re.compile(r"^(?:\w+ )*Error: |^\[[A-Z_.]+\] ")
_MACRO_ERROR = re.compile(r"Could not convert string '(.*)' to BOOL$", re.DOTALL)
# Errors of DuckDB where Spark may have an answer: an unsupported cast, a text that it does not read as a
# time, an unknown time zone, a DECIMAL with too many digits, skewness or kurtosis of infinite numbers.
_NEEDS_SPARK = re.compile(
    r"Unimplemented type for cast|invalid (timestamp|date) field format|Unknown TimeZone|extract specifier|"
    r"Overflow in \w+ of DECIMAL|(SKEW|Kurtosis) is out of range"
)
# A name in a message: in quotes, where a function may have the types of its arguments too, or after a word.
_MENTIONED_NAME = re.compile(
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
    """Return the error for a span of `sql`, which the message shows; None: show no place."""
    return kind(message + (marked_line(sql, span) if span else ""), hint=hint)


def marked_line(sql: str, span: tuple[int, int]) -> str:
    """Return the line of `sql` with a span, and carets below the span."""
    start, end = max(0, min(span[0], len(sql))), span[1]
    first = max(sql.rfind("\n", 0, start), sql.rfind("\r", 0, start)) + 1
    last = min(
        position for position in (sql.find("\n", start), sql.find("\r", start), len(sql)) if position >= 0
    )
    cut_start, cut_end = (
        max(first, start - _MARGIN),
        min(last, max(start, end) + 1 + _MARGIN, start + 2 * _MARGIN),
    )
    quoted = "".join(character if character.isprintable() else " " for character in sql[cut_start:cut_end])
    mark = " " * (start - cut_start) + "^" * max(1, min(end + 1, cut_end) - start)
    number = sql.count("\n", 0, start) + 1
    return f"\nline {number}: {quoted}\n{' ' * len(f'line {number}: ')}{mark}"


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """Return the span of a node in the text from which it was parsed; None where it is not known."""
    own_meta = node.meta
    if "start" in own_meta:
        return int(own_meta["start"]), int(own_meta["end"])
    metas = [child.meta for child in node.walk() if "start" in child.meta]
    return (min(meta["start"] for meta in metas), max(meta["end"] for meta in metas)) if metas else None


def place_of(sql: str, node: exp.Expr) -> tuple[int, int]:
    """Return the span of a node in `sql`: its own, else the last one with its text, else that of its
    parent."""
    if span := span_of(node):
        return span
    # A JSON path is one string literal; its parts have no text of their own.
    for dialect in () if type(node).__name__.startswith("JSONPath") else ("spark", None):
        node_text = node.sql(dialect=dialect, comments=False)
        start = sql.lower().rfind(node_text.lower())
        if node_text and start >= 0:
            return start, start + len(node_text) - 1
    return place_of(sql, node.parent) if node.parent else statement_span(sql)


def statement_span(sql: str) -> tuple[int, int]:
    """Return the span of the whole statement, for errors without a smaller place."""
    return len(sql) - len(sql.lstrip()), len(sql.rstrip()) - 1


def word(sql: str, name: str) -> tuple[int, int] | None:
    """Return the span of the first `name` in `sql`; None if there is none."""
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)
    return (match.start(), match.end() - 1) if match else None


def runs_on_spark(message: str) -> bool:
    """Whether an error of DuckDB means that Spark may have an answer."""
    return FOR_SPARK in message or bool(_NEEDS_SPARK.search(message))


def of_engine(sql: str, error: object, *, unbound: bool = False) -> UsageProblem:
    """Return the error for a SELECT that an engine rejects, with the place in the person's own text.

    `unbound`: DuckDB cannot run the SELECT at all, but Spark may.
    """
    text = str(error).replace(PREFIX, "")
    message = _TAIL.sub("", _HEAD.sub("", text.strip()))[:400]
    if macro_error := _MACRO_ERROR.match(message):  # the message of a macro's `spark_fails`
        message = macro_error[1]
    mentions = (
        mention.group("quoted", "inner", "first", "name") for mention in _MENTIONED_NAME.finditer(message)
    )
    span = next((name_span for name in chain(*mentions) if name and (name_span := word(sql, name))), None)
    if span is None and "convert" in message and (cast := _CAST.search(sql)):
        span = cast.start(), cast.end() - 1
    span = span or statement_span(sql)
    if unbound or runs_on_spark(message):
        message = message.replace(FOR_SPARK, "it needs Spark")
        return wrong(sql, span, f"The query cannot run on DuckDB: {message}", ON_SPARK, kind=NeedsSpark)
    return wrong(sql, span, f"The query cannot run: {message}")
