"""Calls of Spark's functions, rewritten as calls with the same meaning on DuckDB.

Functions that are not here are translated by sqlglot, are macros, or exist on DuckDB under the same name. A
call that only Spark can answer raises UnsupportedError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.errors import UnsupportedError

from lakebackup.sql_engine.guard.macros import PREFIX
from lakebackup.sql_engine.guard.patterns import re2, replacement, time_format

_TRUNCATION_UNITS_TEXT = """
    year=year yyyy=year yy=year quarter=quarter month=month mon=month mm=month week=week day=day dd=day
    hour=hour minute=minute second=second millisecond=millisecond microsecond=microsecond
"""
_TRUNCATION_UNITS = dict(pair.split("=") for pair in _TRUNCATION_UNITS_TEXT.split())
_DATE_UNITS = frozenset({"year", "quarter", "month", "week"})
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_FIXED_UNITS = frozenset({"MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK"})


def call(name: str, arguments: Sequence[exp.Expr]) -> exp.Expr | None:
    """Return a call with the same meaning on DuckDB; None for functions that are not rewritten here.

    `name`: Spark's name in lower case. `arguments`: the arguments. Raises UnsupportedError.
    """
    make = _CALLS.get(name)
    return make(list(arguments)) if make else None


def macro(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of the macro `spark_<name>`."""
    return exp.func(f"{PREFIX}{name}", *arguments)


def ending(node: exp.Expr) -> str:
    """Return the end of the name of a macro for an operand: "_of", for a column, whose type DuckDB knows, so
    that its errors can name the column; else "". A name that is also an alias may mean an aggregate."""
    select = node.find_ancestor(exp.Select)
    aliases = {column.alias.lower() for column in select.expressions} if select else set()
    return "_of" if isinstance(node, exp.Column) and node.name.lower() not in aliases else ""


def _duckdb_call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of a function of DuckDB, which sqlglot does not translate."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def text_of(node: exp.Expr) -> str:
    """Return the value of a string literal. Raises UnsupportedError for an expression, whose value is only
    known when the query runs."""
    if isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string):
        return node.name
    raise UnsupportedError


def units_between(unit: str, start: exp.Expr, end: exp.Expr) -> exp.Expr:
    """Return an expression for the number of whole units between two times. Raises UnsupportedError."""
    unit = unit.upper().removesuffix("S")
    if months := _MONTHS.get(unit):
        between = macro("months", start, end)
        return between if months == 1 else exp.cast(_cut_quotient(between, months), "bigint")
    if unit not in _FIXED_UNITS:
        raise UnsupportedError
    return exp.func("datesub", exp.Literal.string(unit), macro("time", start), macro("time", end))


def _cut_quotient(number: exp.Expr, divisor: int) -> exp.Expr:
    return exp.func("trunc", exp.Div(this=number, expression=exp.Literal.number(divisor), typed=False))


def _truncate(arguments: list[exp.Expr], *, date: bool) -> exp.Expr:
    time, unit = arguments if date else reversed(arguments)
    name = _TRUNCATION_UNITS.get(text_of(unit).lower())
    if name is None or (date and name not in _DATE_UNITS):  # Spark returns NULL
        raise UnsupportedError
    if date:
        return macro("trunc", time, exp.Literal.string(name))
    return macro("date_trunc", exp.Literal.string(name), time)


def _next_day(arguments: list[exp.Expr]) -> exp.Expr:
    name = text_of(arguments[1]).strip().lower()
    for number, day in enumerate(_WEEKDAYS, 1):
        if name in (day, day[:3], day[:2]):
            return macro("next_day", arguments[0], exp.Literal.number(number))
    raise UnsupportedError


def _parse_time(arguments: list[exp.Expr], kind: str, *, prefix: str = "") -> exp.Expr:
    if len(arguments) == 1:
        return macro(f"{prefix}{kind}", arguments[0])
    pattern, format_text = time_format(text_of(arguments[1]))
    time = macro(
        f"{prefix}parsed", arguments[0], exp.Literal.string(pattern), exp.Literal.string(format_text)
    )
    return exp.cast(time, "date") if kind == "date" else time


def _unix_timestamp(arguments: list[exp.Expr]) -> exp.Expr | None:
    if not arguments:
        return None
    return macro(
        "epoch_seconds", _parse_time([*arguments, exp.Literal.string("yyyy-MM-dd HH:mm:ss")][:2], "time")
    )


def _try_parse_time(arguments: list[exp.Expr]) -> exp.Expr:
    return _parse_time(arguments, "time", prefix="try_")


def _size(arguments: list[exp.Expr]) -> exp.Expr:
    return exp.cast(exp.func("cardinality", *arguments), "int")


def _integer(node: exp.Expr) -> int:
    """Return the value of an integer literal. Raises UnsupportedError for anything else."""
    sign, number = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if isinstance(number, exp.Literal) and not number.is_string and number.name.isdigit():
        return sign * int(number.name)
    raise UnsupportedError


def _character(arguments: list[exp.Expr]) -> exp.Expr:
    if not 0 < _integer(arguments[0]) < 256:
        raise UnsupportedError
    return _duckdb_call("chr", *arguments)


def _part_of_text(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    def make(arguments: list[exp.Expr]) -> exp.Expr:
        if not text_of(arguments[1]) or not _integer(arguments[2]):
            raise UnsupportedError
        return _duckdb_call(name, *arguments)

    return make


def _format_number(arguments: list[exp.Expr]) -> exp.Expr:
    _integer(arguments[1])
    return macro("format_number", *arguments)


def _locate(arguments: list[exp.Expr]) -> exp.Expr:
    if len(arguments) > 2:
        raise UnsupportedError
    return exp.cast(_duckdb_call("strpos", arguments[1], arguments[0]), "int")


def _sign(arguments: list[exp.Expr]) -> exp.Expr:
    return macro("sign", *arguments)


def _sequence(arguments: list[exp.Expr]) -> exp.Expr | None:
    """Refuse steps of months: the end of a month plus a month is not the same day on both engines."""
    units = [
        interval.text("unit").upper()[:3]
        for argument in arguments[2:]
        for interval in argument.find_all(exp.Interval)
    ]
    if {"MON", "QUA", "YEA"} & set(units):
        raise UnsupportedError
    return None


def _array_contains(arguments: list[exp.Expr]) -> exp.Expr:
    if isinstance(arguments[1], exp.Null):  # an error on Spark
        raise UnsupportedError
    return macro("array_contains", *arguments)


def _array_join(arguments: list[exp.Expr]) -> exp.Expr:
    for separator in arguments[1:]:
        text_of(separator)
    return macro("array_join", *arguments)


def _format_string(arguments: list[exp.Expr]) -> exp.Expr:
    """Support only %s and %d: Java formats and rounds other numbers differently."""
    parts = re.split("%([sd])", text_of(arguments[0]).replace("%%", "\0"))
    plain, kinds = parts[::2], parts[1::2]
    if len(plain) != len(arguments) or any("%" in part for part in plain):
        raise UnsupportedError
    texts: list[exp.Expr] = [exp.Literal.string(plain[0].replace("\0", "%"))]
    for argument, kind, part in zip(arguments[1:], kinds, plain[1:], strict=True):
        text = macro("text", macro("whole_number", argument) if kind == "d" else argument)
        texts.append(exp.func("ifnull", text, exp.Literal.string("null")))
        texts.append(exp.Literal.string(part.replace("\0", "%")))
    return exp.Concat(expressions=texts, safe=False, coalesce=False)


def _search_operands(text: exp.Expr, pattern: exp.Expr, *, empty: bool) -> tuple[exp.Expr, exp.Expr, int]:
    """Return a text, the pattern to search for in it, and the pattern's number of groups. `empty`: the
    pattern may match an empty text. Raises UnsupportedError."""
    regex = re2(text_of(pattern))
    if (
        regex.matches_empty and not empty
    ):  # the engines differ in where an empty match may follow another match
        raise UnsupportedError
    return (
        macro("one_line", text) if regex.has_end else text,
        exp.Literal.string(regex.text),
        regex.groups,
    )


def _regexp_matches(arguments: list[exp.Expr]) -> exp.Expr:
    text, pattern, _ = _search_operands(*arguments, empty=True)
    return _duckdb_call("regexp_matches", text, pattern)


def _group(arguments: list[exp.Expr], groups: int) -> exp.Expr:
    group = arguments[2] if len(arguments) > 2 else exp.Literal.number(1)
    if not isinstance(group, exp.Literal) or group.is_string or int(group.name) > groups:
        raise UnsupportedError
    return group.copy()


def _regexp_extract(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    def make(arguments: list[exp.Expr]) -> exp.Expr:
        text, pattern, groups = _search_operands(*arguments[:2], empty=name == "regexp_extract")
        return _duckdb_call(name, text, pattern, _group(arguments, groups))

    return make


def _regexp_count(arguments: list[exp.Expr]) -> exp.Expr:
    text, pattern, _ = _search_operands(*arguments, empty=False)
    return exp.cast(exp.func("len", _duckdb_call("regexp_extract_all", text, pattern)), "int")


def _regexp_substring(arguments: list[exp.Expr]) -> exp.Expr:
    text, pattern, _ = _search_operands(*arguments, empty=False)
    return exp.func("nullif", _duckdb_call("regexp_extract", text, pattern), exp.Literal.string(""))


def _regexp_replace(arguments: list[exp.Expr]) -> exp.Expr:
    if len(arguments) != 3:
        raise UnsupportedError
    text, pattern, groups = _search_operands(*arguments[:2], empty=False)
    new = exp.Literal.string(replacement(text_of(arguments[2]), groups))
    return _duckdb_call("regexp_replace", text, pattern, new, exp.Literal.string("g"))


def _split(arguments: list[exp.Expr]) -> exp.Expr:
    if len(arguments) > 2:
        limit = arguments[2]
        if not (isinstance(limit, exp.Neg) or (isinstance(limit, exp.Literal) and limit.name == "0")):
            raise UnsupportedError
    text, pattern, _ = _search_operands(*arguments[:2], empty=False)
    return _duckdb_call("string_split_regex", text, pattern)


_CALLS: dict[str, Callable[[list[exp.Expr]], exp.Expr | None]] = {
    "array_contains": _array_contains,
    "array_join": _array_join,
    "base64": lambda arguments: _duckdb_call("to_base64", _duckdb_call("encode", *arguments)),
    "cardinality": _size,
    "char": _character,
    "chr": _character,
    "date_trunc": lambda arguments: _truncate(arguments, date=False),
    "format_number": _format_number,
    "format_string": _format_string,
    "json_array_length": lambda arguments: macro("json_length", *arguments),
    "json_object_keys": lambda arguments: macro("json_keys", *arguments),
    "levenshtein": lambda arguments: macro("levenshtein", *arguments),
    "locate": _locate,
    "next_day": _next_day,
    "printf": _format_string,
    "regexp": _regexp_matches,
    "regexp_count": _regexp_count,
    "regexp_extract": _regexp_extract("regexp_extract"),
    "regexp_extract_all": _regexp_extract("regexp_extract_all"),
    "regexp_like": _regexp_matches,
    "regexp_replace": _regexp_replace,
    "regexp_substr": _regexp_substring,
    "rlike": _regexp_matches,
    "sequence": _sequence,
    "sign": _sign,
    "signum": _sign,
    "size": _size,
    "split": _split,
    "split_part": _part_of_text("split_part"),
    "substring_index": _part_of_text("substring_index"),
    "to_date": lambda arguments: _parse_time(arguments, "date"),
    "to_timestamp": lambda arguments: _parse_time(arguments, "time"),
    "to_unix_timestamp": _unix_timestamp,
    "trunc": lambda arguments: _truncate(arguments, date=True),
    "try_to_timestamp": _try_parse_time,
    "unix_timestamp": _unix_timestamp,
}
#: The functions above, which sqlglot must parse as plain calls.
NAMES = frozenset(name.upper() for name in _CALLS)
