"""Rows on their way out: as a table, JSON lines or CSV, batch by batch so that any number fits."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lakebackup.errors import UsageProblem
from lakebackup_jobs.lifecycle.progress import display
from lakebackup_jobs.runtime.terminal_text import bold, table_lines, visible, widths_of

if TYPE_CHECKING:
    import pyarrow as pa

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_FIRST_ROWS = 200
"""Column widths of a table come from this many rows: the rest streams by."""


def write(
    rows: pa.RecordBatchReader,
    *,
    as_json: bool,
    as_csv: bool,
    vertical: bool = False,
    columns: Sequence[str] | None = None,
) -> None:
    """Write all rows to standard output; a table shows `columns` with units, or all of them as they are.
    `vertical`: each column on a line of its own.

    A reader that goes away (`| head`) ends it quietly. Raises UsageProblem when both forms are asked for.
    """
    if as_json and as_csv:
        raise UsageProblem("--json and --csv exclude each other.")
    with reader_may_leave():
        if as_json:
            for row in _rows(rows):
                sys.stdout.write(json_line(row))
        elif as_csv:
            _csv(rows)
        elif vertical:
            _vertical(rows)
        else:
            _table(rows, columns)
        sys.stdout.flush()


def json_line(row: Mapping[str, Any]) -> str:
    """A row as one line of JSON: instants as ISO 8601, bytes as hex."""
    return json.dumps(row, default=_plain) + "\n"


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """End quietly when whoever reads the output has gone."""
    try:
        yield
    except BrokenPipeError:
        # Python flushes once more when it ends; that must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(value: Any) -> str | int:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)  # sums of whole numbers
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        # DuckDB's times have no zone: they are UTC.
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat().replace("+00:00", "Z")
    return str(value)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, default=_plain).strip('"')


def _csv(rows: pa.RecordBatchReader) -> None:
    import csv

    plain = csv.writer(sys.stdout, lineterminator="\n")
    quoted = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_ALL)
    # A program gets the text as it is; a person's terminal must not obey it.
    shown = visible if sys.stdout.isatty() else str

    def put(cells: Iterable[str]) -> None:
        row = list(map(shown, cells))
        # Python's own rule leaves a carriage return bare, which ends the line for other programs.
        (quoted if any("\r" in cell for cell in row) else plain).writerow(row)

    put(map(_no_formula, rows.schema.names))
    for row in _rows(rows):
        put(_no_formula(value) if isinstance(value, str) else _cell(value) for value in row.values())


def _vertical(rows: pa.RecordBatchReader) -> None:
    names = [*map(visible, rows.schema.names)]
    width = max(map(len, names), default=0)
    for number, row in enumerate(_rows(rows), 1):
        sys.stdout.write(f"-[ row {number} ]-\n")
        for name, value in zip(names, row.values(), strict=True):
            sys.stdout.write(f"{name:{width}} | {visible(_cell(value))}\n")


def _no_formula(text: str) -> str:
    """A text that a spreadsheet would run gets a quote in front, which makes it text there; numbers stay."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def _table(rows: pa.RecordBatchReader, columns: Sequence[str] | None) -> None:
    from pyarrow import types

    names = list(columns or rows.schema.names)
    kinds = [rows.schema.field(name).type for name in names]
    numbers = [
        any(is_a(kind) for is_a in (types.is_integer, types.is_floating, types.is_decimal)) for kind in kinds
    ]
    cells = (
        [display(name, row[name]) if columns else visible(_cell(row[name])) for name in names]
        for row in _rows(rows)
    )
    header, first = [*map(visible, names)], list(islice(cells, _FIRST_ROWS))
    widths = widths_of([header, *first])
    (line,) = table_lines([header], widths, numbers)
    sys.stdout.write(bold(line, sys.stdout))
    sys.stdout.writelines(table_lines(chain(first, cells), widths, numbers))
