"""Writes rows as a table, JSON lines, CSV or Markdown, batch by batch, so any number of rows fits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakebackup.sql_engine.arrow import python_values, type_name
from lakebackup_jobs.cli.output.pager import paged
from lakebackup_jobs.lifecycle.progress import display, reader_may_leave
from lakebackup_jobs.query.words import counted
from lakebackup_jobs.runtime.column_text import NOT_PRINTABLE_ASCII, Form, joined, joined_rows, pieces, texts
from lakebackup_jobs.runtime.row_text import cell_text, csv_texts, json_text, json_texts
from lakebackup_jobs.runtime.terminal_table import (
    FIRST_ROWS,
    GAP,
    Screen,
    has_room,
    is_state,
    padded,
    screen_of,
    table,
    table_lines,
    widths_of,
    wrap,
)
from lakebackup_jobs.runtime.terminal_text import visible

Mode = Literal["table", "wide", "vertical", "csv", "json", "agent"]


@dataclass(frozen=True, slots=True)
class Brief:
    """How a terminal shows a verb's rows.

    It shows `columns`. When there is no room for all, it leaves out those of `first_out` first. `short`
    shortens ids.
    """

    columns: Sequence[str]
    first_out: Sequence[str] = ()
    short: Callable[[str], str] | None = None


def write(
    rows: pa.RecordBatchReader,
    *,
    mode: Mode = "table",
    pages: bool = False,
    columns: Sequence[str] | None = None,
    brief: Brief | None = None,
) -> None:
    """Write all rows to standard output, in one of the modes.

    A `table` shows `columns` with units, or all columns without. On a terminal it fits the screen: it shows
    `brief`, or else all columns, or is `vertical` if they have no room. `wide` is a table of all columns in
    full, and `vertical` puts each column on a line of its own. `agent` is a table of Markdown for a language
    model, with `columns` or all columns, and their types. `json` is JSON lines.

    `pages` starts a pager on a terminal. A reader that leaves (`| head`) ends the output quietly.
    """
    screen = screen_of(sys.stdout, wide=mode == "wide")
    with paged() if pages else nullcontext(), reader_may_leave(), python_values():
        if mode == "json":
            sys.stdout.writelines(json_texts(rows, rows.schema.names))
        elif mode == "agent":
            _markdown(rows, columns or rows.schema.names)
        elif mode == "csv":
            # A program gets the text unchanged. A terminal must not interpret control characters in it.
            text_of, unsafe_pattern = (visible, NOT_PRINTABLE_ASCII) if screen else (str, None)
            sys.stdout.writelines(csv_texts(rows, rows.schema.names, convert=text_of, hard=unsafe_pattern))
        elif mode == "vertical":
            _vertical(rows.schema.names, _rows(rows), screen)
        elif brief and screen and mode != "wide":
            _brief(rows, brief, screen)
        elif columns or brief:
            names = rows.schema.names if mode == "wide" or not columns else columns
            _units(rows, names, screen)
        else:
            _table(rows, screen)
        sys.stdout.flush()


def json_line(row: Mapping[str, Any]) -> str:
    """A row as one line of JSON. Instants are in ISO 8601, bytes in hex."""
    return json_text(row) + "\n"


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _vertical(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], screen: Screen | None) -> None:
    names = [*map(visible, columns)]
    width = max(map(len, names), default=0)
    for number, row in enumerate(rows, 1):
        sys.stdout.write(f"-[ row {number} ]-\n")
        for name, value in zip(names, row.values(), strict=True):
            text = visible(cell_text(value))
            first_line, *other_lines = (
                [text] if screen is None else wrap(text, width + 3, screen.width) or [""]
            )
            first_text = screen.state(first_line) if screen and is_state(name) else first_line
            sys.stdout.write(f"{name:{width}} | {first_text}\n")
            sys.stdout.writelines(f"{'':{width}} | {line}\n" for line in other_lines)


def _markdown(rows: pa.RecordBatchReader, names: Sequence[str]) -> None:
    """Write some columns as a table of Markdown. Null is an empty cell, and an empty text is `""`."""
    headers = [f"{_markdown_text(name)}: {type_name(rows.schema.field(name).type)}" for name in names]
    sys.stdout.write(f"|{'|'.join(headers)}|\n|{'---|' * len(names)}\n")
    count = 0
    for row in _rows(rows):
        cells = [_markdown_text('""' if row[name] == "" else cell_text(row[name])) for name in names]
        sys.stdout.write(f"|{'|'.join(cells)}|\n")
        count += 1
    sys.stdout.write(f"({counted(count, 'row')})\n")


def _markdown_text(text: str) -> str:
    return visible(text).replace("|", "\\|")


def _table(rows: pa.RecordBatchReader, screen: Screen | None) -> None:
    """Write all columns, without units."""
    names = rows.schema.names
    headers = [*map(visible, names)]
    if screen is None:
        _aligned(rows, names, lambda _, value: visible(cell_text(value)), figures=True)
        return
    all_rows = _rows(rows)
    if screen.width is not None:
        first_rows = list(islice(all_rows, FIRST_ROWS))
        all_rows = chain(first_rows, all_rows)
        if not has_room(headers, [_texts(row) for row in first_rows], screen.width):
            _vertical(names, all_rows, screen)
            return
    lines = table(headers, map(_texts, all_rows), numbers=_numbers(rows, names), screen=screen)
    sys.stdout.writelines(lines)


def _texts(row: Mapping[str, Any]) -> list[str]:
    return [visible(cell_text(value)) for value in row.values()]


def _units(rows: pa.RecordBatchReader, names: Sequence[str], screen: Screen | None) -> None:
    """Write some columns, with their units."""
    if screen is None:
        _aligned(rows, names, display)
        return
    cells = ([display(name, row[name]) for name in names] for row in _rows(rows))
    sys.stdout.writelines(table(names, cells, numbers=_numbers(rows, names), screen=screen))


def _aligned(
    rows: pa.RecordBatchReader,
    names: Sequence[str],
    cell: Callable[[str, Any], str],
    *,
    figures: bool = False,
) -> None:
    """Write some columns in full, for a file or a program. `cell` makes a text from a name and a value.

    `figures`: `cell` does not change numbers.
    """
    batches = (batch.select(names) for batch in pieces(rows))
    first_batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in first_batches) < FIRST_ROWS and (batch := next(batches, None)):
        first_batches.append(batch)
    first_rows = chain.from_iterable(batch.to_pylist() for batch in first_batches)
    first_texts = [[cell(*value) for value in row.items()] for row in islice(first_rows, FIRST_ROWS)]
    right, header = _numbers(rows, names), [*map(visible, names)]
    widths = widths_of([header, *first_texts])
    sys.stdout.writelines(table_lines([header], widths, right))

    def form(name: str, width: int, right: bool) -> Form:
        def padded_cell(value: Any) -> str:
            return padded(cell(name, value), width, right)

        fill = partial(pc.utf8_lpad if right else pc.utf8_rpad, width=width)
        return Form(padded_cell, NOT_PRINTABLE_ASCII, fill, number=fill if figures else None)

    forms = [*map(form, names, widths, right)]
    for batch in chain(first_batches, batches):
        cells = [texts(values, column_form) for values, column_form in zip(batch.columns, forms, strict=True)]
        line = pc.utf8_rtrim_whitespace(joined(*cells, between=" " * GAP))
        sys.stdout.write(joined_rows(joined(line, "\n")))


def _brief(rows: pa.RecordBatchReader, brief: Brief, screen: Screen) -> None:
    """Write the columns of `brief` as a table that fits the terminal."""
    names, now_ms = brief.columns, time.time_ns() // 1_000_000

    def cell(name: str, value: Any) -> str:
        if brief.short and name == "backup_id":
            return visible(brief.short(value))
        return display(name, value, now_ms)

    cells = ([cell(name, row[name]) for name in names] for row in _rows(rows))
    lines = table(names, cells, numbers=_numbers(rows, names), screen=screen, first_out=brief.first_out)
    sys.stdout.writelines(lines)


def _numbers(rows: pa.RecordBatchReader, names: Sequence[str]) -> list[bool]:
    """For each column, whether it has numbers, which are aligned right."""
    kinds = [rows.schema.field(name).type for name in names]
    return [
        any(is_a(kind) for is_a in (types.is_integer, types.is_floating, types.is_decimal)) for kind in kinds
    ]
