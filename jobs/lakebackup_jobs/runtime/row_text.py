"""Writes rows as JSON lines and as CSV (RFC 4180 with line feeds), in pieces that always fit into memory.

In CSV a text that a spreadsheet would take for a formula gets a `'` in front, and null is empty.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup_jobs.runtime.column_text import NOT_PRINTABLE_ASCII, Form, joined, joined_rows, pieces, texts

_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def json_texts(
    batches: Iterable[pa.RecordBatch], names: list[str], *, raw: Collection[str] = ()
) -> Iterator[str]:
    """Yield the rows as JSON lines. The columns `raw` are JSON already, without line ends."""

    def quoted(text: pa.Array) -> pa.Array:
        for letter in ("\\", '"'):
            text = pc.replace_substring(text, letter, f"\\{letter}")
        return joined('"', text, '"')

    form = Form(json_text, NOT_PRINTABLE_ASCII, quoted, number=lambda text: text)
    for batch in pieces(batches):
        parts, separator = [], "{"
        for name, values in zip(names, batch.columns, strict=True):
            text = pc.fill_null(values, "null") if name in raw else texts(values, form)
            parts += [f"{separator}{json_text(name)}: ", text]
            separator = ", "
        yield joined_rows(joined(*parts, "}\n"))


def csv_texts(
    batches: Iterable[pa.RecordBatch],
    names: list[str],
    *,
    convert: Callable[[str], str] = str,
    hard: str | None = None,
) -> Iterator[str]:
    """Yield a header and the rows as CSV. `convert` converts texts that the regular expression `hard`
    finds."""

    def field(value: Any) -> str:
        return convert(_no_formula(value) if isinstance(value, str) else cell_text(value))

    hard_pattern = f"{hard}|{_FORMULA}" if hard else _FORMULA
    form = Form(field, hard_pattern, lambda text: text, number=lambda text: text)
    header = pa.record_batch([[name] for name in names], names)
    for batch in chain([header], pieces(batches)):
        cells = [texts(values, form) for values in batch.columns]
        # Some programs take a carriage return for the end of a line.
        quoted = reduce(pc.or_, (pc.match_substring(text, "\r") for text in cells))
        if len(cells) == 1:
            quoted = pc.or_(quoted, pc.equal(cells[0], ""))  # an empty line would be no row
        cells = [_csv_field(text, pc.or_(quoted, pc.match_substring_regex(text, '[",\n]'))) for text in cells]
        yield joined_rows(joined(joined(*cells, between=","), "\n"))


def cell_text(value: Any) -> str:
    """Return a value as text, "" for null."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return json_text(value).strip('"')


def _plain(value: Any) -> str | int:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)  # a sum of whole numbers is a decimal
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        # DuckDB's times have no time zone; they are UTC.
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat().replace("+00:00", "Z")
    return str(value)


_encode = json.JSONEncoder(default=_plain, allow_nan=False).encode


def json_text(value: Any) -> str:
    """Return a value as JSON: instants as ISO 8601, bytes as hex, NaN and the infinities as null."""
    try:
        return _encode(value)
    except ValueError:  # JSON has no NaN and no infinity
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv_field(text: pa.Array, quoted: pa.Array) -> pa.Array:
    return pc.if_else(quoted, joined('"', pc.replace_substring(text, '"', '""'), '"'), text)


def _no_formula(text: str) -> str:
    """Put a quote in front of a text that a spreadsheet would run as a formula. Numbers are not changed."""
    return f"'{text}" if re.match(_FORMULA, text) and not _NUMBER.fullmatch(text) else text
