"""Parameters of a SELECT: each `:name` becomes a literal of SQL, which no text can break out of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from sqlglot import TokenType, exp, tokenize
from sqlglot.errors import TokenError

from lakebackup.errors import UsageProblem

_NAME = re.compile(r"[A-Za-z_]\w*")


def bind(select: str, args: Mapping[str, Any]) -> str:
    """Return the SELECT with each `:name` replaced by its value in `args`.

    Raises UsageProblem for a name without a value, and for a value that SQL has no literal for.
    """
    try:
        tokens = tokenize(select, dialect="spark")
    except TokenError:  # the later check of the SELECT reports it
        return select
    sql, end = "", 0
    for previous, colon, name in zip([None, *tokens], tokens, tokens[1:], strict=False):
        is_path = previous is not None and previous.end + 1 == colon.start and _NAME.fullmatch(previous.text)
        if colon.token_type is not TokenType.COLON or name.start != colon.end + 1 or is_path:
            continue
        if not _NAME.fullmatch(name.text):
            continue
        if name.text not in args:
            raise UsageProblem(
                f"The parameter :{name.text} has no value.",
                hint=f'Give it: con.sql(…, args={{"{name.text}": …}}); in a notebook, set the variable '
                f"{name.text}.",
            )
        sql += select[end : colon.start] + _literal(name.text, args[name.text])
        end = name.end + 1
    return sql + select[end:]


def _literal(name: str, value: Any) -> str:
    """Return a value as a literal of Spark SQL. Times are in UTC, also those without a zone."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int() | Decimal():
            return f"({value})"
        case float() if isfinite(value):
            return f"CAST({value!r} AS DOUBLE)"
        case str():
            return exp.Literal.string(value).sql("spark")
        case datetime():
            utc = value.astimezone(UTC) if value.tzinfo else value
            return f"TIMESTAMP '{utc:%Y-%m-%d %H:%M:%S.%f}'"
        case date():
            return f"DATE '{value:%Y-%m-%d}'"
    raise UsageProblem(
        f"The parameter :{name} is a {type(value).__name__}, which SQL has no literal for.",
        hint="Give a text, a number, a date, a datetime, a bool or None.",
    )
