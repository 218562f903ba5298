"""Calls of Spark's functions, each as what means the same on DuckDB.

A function that is not here is one that DuckDB has under that name, a macro, or sqlglot's to translate. What
only Spark answers raises UnsupportedError.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import UnsupportedError

from lakebackup.sql_engine.guard.macros import OTHER
from lakebackup.sql_engine.guard.patterns import re2, replacement, time_format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TRUNCATED_TEXT = """
    year=year yyyy=year yy=year quarter=quarter month=month mon=month mm=month week=week day=day dd=day
    hour=hour minute=minute second=second millisecond=millisecond microsecond=microsecond
"""
_TRUNCATED = dict(pair.split("=") for pair in _TRUNCATED_TEXT.split())
_DATES = frozenset({"year", "quarter", "month", "week"})
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SPANS = frozenset({"MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK"})


def call(name: str, given: Sequence[exp.Expr]) -> exp.Expr | None:
    """The same for DuckDB; None where the name alone changes. Raises UnsupportedError."""
    make = _CALLS.get(name)
    return make(list(given)) if make else None


def macro(name: str, *given: exp.Expr) -> exp.Expr:
    """A call of one of our macros that has a name of DuckDB's."""
    return exp.func(f"{OTHER}{name}", *given)


def ending(node: exp.Expr) -> str:
    """The end of a macro's name: a column's type is known, so that an error can name it.

    That of an alias may be an aggregate's.
    """
    select = node.find_ancestor(exp.Select)
    aliases = {one.alias.lower() for one in select.expressions} if select else set()
    return "_of" if isinstance(node, exp.Column) and node.name.lower() not in aliases else ""


def _called(name: str, *given: exp.Expr) -> exp.Expr:
    """A call by a name that is DuckDB's, which sqlglot is not to read."""
    return exp.Anonymous(this=name, expressions=list(given))


def text_of(node: exp.Expr) -> str:
    """A text that is written out. Raises UnsupportedError for what is only known as the query runs."""
    if isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string):
        return node.name
    raise UnsupportedError


def units_between(unit: str, start: exp.Expr, end: exp.Expr) -> exp.Expr:
    """How many whole units are between two times."""
    unit = unit.upper().removesuffix("S")
    if months := _MONTHS.get(unit):
        between = macro("months", start, end)
        return between if months == 1 else exp.cast(_cut(between, months), "bigint")
    if unit not in _SPANS:
        raise UnsupportedError
    return exp.func("datesub", exp.Literal.string(unit), macro("time", start), macro("time", end))


def _cut(number: exp.Expr, by: int) -> exp.Expr:
    return exp.func("trunc", exp.Div(this=number, expression=exp.Literal.number(by), typed=False))


def _truncated(given: list[exp.Expr], *, date: bool) -> exp.Expr:
    time, unit = given if date else reversed(given)
    name = _TRUNCATED.get(text_of(unit).lower())
    if name is None or (date and name not in _DATES):  # NULL on Spark
        raise UnsupportedError
    if date:
        return macro("trunc", time, exp.Literal.string(name))
    return macro("date_trunc", exp.Literal.string(name), time)


def _next_day(given: list[exp.Expr]) -> exp.Expr:
    name = text_of(given[1]).strip().lower()
    for number, day in enumerate(_WEEKDAYS, 1):
        if name in (day, day[:3], day[:2]):
            return macro("next_day", given[0], exp.Literal.number(number))
    raise UnsupportedError


def _parsed(given: list[exp.Expr], kind: str, *, tried: str = "") -> exp.Expr:
    if len(given) == 1:
        return macro(f"{tried}{kind}", given[0])
    pattern, written = time_format(text_of(given[1]))
    time = macro(f"{tried}parsed", given[0], exp.Literal.string(pattern), exp.Literal.string(written))
    return exp.cast(time, "date") if kind == "date" else time


def _seconds(given: list[exp.Expr]) -> exp.Expr | None:
    if not given:
        return None
    return macro("epoch_seconds", _parsed([*given, exp.Literal.string("yyyy-MM-dd HH:mm:ss")][:2], "time"))


def _tried(given: list[exp.Expr]) -> exp.Expr:
    return _parsed(given, "time", tried="try_")


def _size(given: list[exp.Expr]) -> exp.Expr:
    return exp.cast(exp.func("cardinality", *given), "int")


def _whole(node: exp.Expr) -> int:
    """A whole number that is written out. Raises UnsupportedError."""
    sign, number = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if isinstance(number, exp.Literal) and not number.is_string and number.name.isdigit():
        return sign * int(number.name)
    raise UnsupportedError


def _character(given: list[exp.Expr]) -> exp.Expr:
    if not 0 < _whole(given[0]) < 256:
        raise UnsupportedError
    return _called("chr", *given)


def _part(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    def make(given: list[exp.Expr]) -> exp.Expr:
        if not text_of(given[1]) or not _whole(given[2]):
            raise UnsupportedError
        return _called(name, *given)

    return make


def _format_number(given: list[exp.Expr]) -> exp.Expr:
    _whole(given[1])
    return macro("format_number", *given)


def _located(given: list[exp.Expr]) -> exp.Expr:
    if len(given) > 2:
        raise UnsupportedError
    return exp.cast(_called("strpos", given[1], given[0]), "int")


def _sign(given: list[exp.Expr]) -> exp.Expr:
    return macro("sign", *given)


def _sequence(given: list[exp.Expr]) -> exp.Expr | None:
    """The end of a month plus a month is not the same day on both."""
    units = [one.text("unit").upper()[:3] for part in given[2:] for one in part.find_all(exp.Interval)]
    if {"MON", "QUA", "YEA"} & set(units):
        raise UnsupportedError
    return None


def _contained(given: list[exp.Expr]) -> exp.Expr:
    if isinstance(given[1], exp.Null):  # an error on Spark
        raise UnsupportedError
    return macro("array_contains", *given)


def _array_join(given: list[exp.Expr]) -> exp.Expr:
    for separator in given[1:]:
        text_of(separator)
    return macro("array_join", *given)


def _format_string(given: list[exp.Expr]) -> exp.Expr:
    """%s and %d alone: Java writes and rounds other numbers otherwise."""
    parts = re.split("%([sd])", text_of(given[0]).replace("%%", "\0"))
    plain, kinds = parts[::2], parts[1::2]
    if len(plain) != len(given) or any("%" in part for part in plain):
        raise UnsupportedError
    texts: list[exp.Expr] = [exp.Literal.string(plain[0].replace("\0", "%"))]
    for argument, kind, part in zip(given[1:], kinds, plain[1:], strict=True):
        text = macro("text", macro("whole_number", argument) if kind == "d" else argument)
        texts.append(exp.func("ifnull", text, exp.Literal.string("null")))
        texts.append(exp.Literal.string(part.replace("\0", "%")))
    return exp.Concat(expressions=texts, safe=False, coalesce=False)


def _searched(text: exp.Expr, pattern: exp.Expr, *, empty: bool) -> tuple[exp.Expr, exp.Expr, int]:
    """The text and the pattern to look for in it, and how many groups it has."""
    found = re2(text_of(pattern))
    if found.empty and not empty:  # where an empty match begins after another differs
        raise UnsupportedError
    return (
        macro("one_line", text) if found.at_end else text,
        exp.Literal.string(found.text),
        found.groups,
    )


def _matches(given: list[exp.Expr]) -> exp.Expr:
    text, pattern, _ = _searched(*given, empty=True)
    return _called("regexp_matches", text, pattern)


def _group(given: list[exp.Expr], groups: int) -> exp.Expr:
    group = given[2] if len(given) > 2 else exp.Literal.number(1)
    if not isinstance(group, exp.Literal) or group.is_string or int(group.name) > groups:
        raise UnsupportedError
    return group.copy()


def _extracted(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    def make(given: list[exp.Expr]) -> exp.Expr:
        text, pattern, groups = _searched(*given[:2], empty=name == "regexp_extract")
        return _called(name, text, pattern, _group(given, groups))

    return make


def _counted(given: list[exp.Expr]) -> exp.Expr:
    text, pattern, _ = _searched(*given, empty=False)
    return exp.cast(exp.func("len", _called("regexp_extract_all", text, pattern)), "int")


def _substring(given: list[exp.Expr]) -> exp.Expr:
    text, pattern, _ = _searched(*given, empty=False)
    return exp.func("nullif", _called("regexp_extract", text, pattern), exp.Literal.string(""))


def _replaced(given: list[exp.Expr]) -> exp.Expr:
    if len(given) != 3:
        raise UnsupportedError
    text, pattern, groups = _searched(*given[:2], empty=False)
    new = exp.Literal.string(replacement(text_of(given[2]), groups))
    return _called("regexp_replace", text, pattern, new, exp.Literal.string("g"))


def _split(given: list[exp.Expr]) -> exp.Expr:
    if len(given) > 2:
        limit = given[2]
        if not (isinstance(limit, exp.Neg) or (isinstance(limit, exp.Literal) and limit.name == "0")):
            raise UnsupportedError
    text, pattern, _ = _searched(*given[:2], empty=False)
    return _called("string_split_regex", text, pattern)


_CALLS: dict[str, Callable[[list[exp.Expr]], exp.Expr | None]] = {
    "array_contains": _contained,
    "array_join": _array_join,
    "base64": lambda given: _called("to_base64", _called("encode", *given)),
    "cardinality": _size,
    "char": _character,
    "chr": _character,
    "date_trunc": lambda given: _truncated(given, date=False),
    "format_number": _format_number,
    "format_string": _format_string,
    "json_array_length": lambda given: macro("json_length", *given),
    "json_object_keys": lambda given: macro("json_keys", *given),
    "levenshtein": lambda given: macro("levenshtein", *given),
    "locate": _located,
    "next_day": _next_day,
    "printf": _format_string,
    "regexp": _matches,
    "regexp_count": _counted,
    "regexp_extract": _extracted("regexp_extract"),
    "regexp_extract_all": _extracted("regexp_extract_all"),
    "regexp_like": _matches,
    "regexp_replace": _replaced,
    "regexp_substr": _substring,
    "rlike": _matches,
    "sequence": _sequence,
    "sign": _sign,
    "signum": _sign,
    "size": _size,
    "split": _split,
    "split_part": _part("split_part"),
    "substring_index": _part("substring_index"),
    "to_date": lambda given: _parsed(given, "date"),
    "to_timestamp": lambda given: _parsed(given, "time"),
    "to_unix_timestamp": _seconds,
    "trunc": lambda given: _truncated(given, date=True),
    "try_to_timestamp": _tried,
    "unix_timestamp": _seconds,
}
#: Names that sqlglot would make something else of.
NAMES = frozenset(name.upper() for name in _CALLS)
