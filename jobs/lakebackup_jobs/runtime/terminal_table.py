"""Formats tables as lines of text: in full for files and pipes, and to fit the width on a terminal.

Texts too long for their column are cut: names, paths and keys in the middle, since their ends distinguish
them, and sentences at the end. Ids, numbers and times are never cut. If a table is still too wide, columns
are left out, and a last line names them.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TextIO

from rich.cells import cell_len, set_cell_size

FIRST_ROWS = 200
"""Widths are computed from this many rows. The other rows are streamed."""
GAP = 2
"""Spaces between two columns."""
_LEAST, _LEAST_OF_PATHS = 16, 28
"""No text is cut to a smaller width than this."""
# Ids of backups, numbers and times, which are useless when they are cut.
_UNCUT = re.compile(r"\d{8}T\d{4,6}(Z(-[0-9a-f]{0,8})?)?|[-+]?[\d.,]+|\d{4}-\d\d-\d\d[T ][\d:.]+Z?")
_STATES = frozenset({"state", "status", "outcome", "intact"})
_GREEN, _YELLOW, _RED, _DIM, _BOLD = "32", "33", "31", "2", "1"
_COLOURS: Mapping[str, str] = {
    **dict.fromkeys(("complete", "running", "ok", "yes", "true", "restorable", "OK"), _GREEN),
    **dict.fromkeys(("out_of_sync", "unconfirmed", "paused", "fork"), _YELLOW),
    **dict.fromkeys(("LATE", "FAILED", "FUTURE", "UNVERIFIED"), _YELLOW),
    **dict.fromkeys(
        (
            "failed",
            "missing",
            "changed",
            "damaged",
            "orphan",
            "gap",
            "not intact",
            "no",
            "false",
            "DAMAGED",
            "UNPROTECTED",
        ),
        _RED,
    ),
    **dict.fromkeys(("deleted", "stopped"), _DIM),
}


@dataclass(frozen=True, slots=True)
class Screen:
    """A terminal that shows tables: the width of its lines (None: any), and whether it shows colours."""

    width: int | None
    colours: bool

    def dim(self, text: str) -> str:
        """Return a text that is dimmed, on a screen with colours."""
        return self._style(text, _DIM)

    def bold(self, text: str) -> str:
        """Return a text, such as a header, in bold."""
        return _styled(text, _BOLD)

    def state(self, text: str) -> str:
        """Return a state in its colour. The text may be padded."""
        colour = _COLOURS.get(text.strip())
        return self._style(text, colour) if colour else text

    def _style(self, text: str, style: str) -> str:
        return _styled(text, style) if self.colours else text


def screen_of(stream: TextIO, *, wide: bool = False) -> Screen | None:
    """Return the terminal that `stream` is, or None if it is none. `wide`: its lines may have any length."""
    if not stream.isatty():
        return None
    width = None if wide else shutil.get_terminal_size().columns
    return Screen(width, not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[bool] = (),
    screen: Screen | None = None,
    first_out: Sequence[str] = (),
    all_columns: str = "--wide shows all",
) -> Iterator[str]:
    """Yield the lines of a table of visible texts. Columns of `numbers` are aligned right.

    If a screen's width is too small, columns are left out: first columns of texts that are the same in all
    rows, then `first_out`, then columns from the right, but never the first column. `all_columns` tells the
    user how to see them.
    """
    row_iterator = iter(rows)
    first_rows = list(islice(row_iterator, FIRST_ROWS))
    full_widths = widths_of([names, *first_rows])
    if screen is None:
        header, *_ = table_lines([names], full_widths, numbers)
        yield header
        yield from table_lines(chain(first_rows, row_iterator), full_widths, numbers)
        return
    right_aligned = [*numbers, *[False] * (len(names) - len(numbers))]
    order = _omission_order(names, first_rows, right_aligned, first_out)
    columns, widths = _fit(full_widths, _least_widths(names, first_rows, full_widths), order, screen.width)

    def cell(text: str, index: int) -> str:
        if screen.width is not None and not _is_uncut(text):
            text = cut(text, max(widths[index], _least(text)))
        text = padded(text, widths[index], right_aligned[index])
        return screen.state(text) if is_state(names[index]) else text

    header, *_ = table_lines(
        [[names[index] for index in columns]],
        [widths[index] for index in columns],
        [right_aligned[index] for index in columns],
    )
    yield screen.bold(header.rstrip()) + "\n"
    for row in chain(first_rows, row_iterator):
        yield (" " * GAP).join(cell(row[index], index) for index in columns).rstrip() + "\n"
    if omitted := [name for index, name in enumerate(names) if index not in columns]:
        note = f"Left out ({all_columns}): {', '.join(omitted)}"
        yield screen.dim(cut(note, screen.width or len(note))) + "\n"


def wrapped_table(names: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen) -> Iterator[str]:
    """Yield the lines of a table of visible texts whose last column, such as an explanation, is wrapped.

    It fits the screen's width. The other columns are shown in full.
    """
    *widths, _ = widths_of([names, *rows])
    indent = sum(widths) + GAP * len(widths)
    header, *_ = table_lines([names], [*widths, 0])
    yield screen.bold(header.rstrip()) + "\n"
    for *cells, text in rows:
        first_line, *following = wrap(text, indent, screen.width) or [""]
        yield from table_lines([[*cells, first_line]], [*widths, 0])
        yield from (f"{' ' * indent}{line}\n" for line in following)


def wrap(text: str, indent: int, width: int | None) -> list[str]:
    """Wrap a visible text to lines that fit between an indent and a width (None: any width).

    Words are broken only if they are longer than a line.
    """
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width - indent, _LEAST), break_on_hyphens=False)


def is_state(name: str) -> bool:
    """Return whether a column of this name has states, which are shown in colours."""
    return name in _STATES


def has_room(names: Sequence[str], first: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether a table with all columns fits a width when its texts are cut as far as possible."""
    return _total(_least_widths(names, first, widths_of([names, *first]))) <= width


def widths_of(rows: Iterable[Sequence[str]]) -> list[int]:
    """Return how wide each column of some visible texts is on a terminal."""
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def table_lines(
    rows: Iterable[Sequence[str]], widths: Sequence[int], numbers: Sequence[bool] = ()
) -> Iterator[str]:
    """Yield rows of visible texts as lines of columns, without cuts. Those of `numbers` are aligned right."""
    right_aligned = [*numbers, *[False] * (len(widths) - len(numbers))]
    for row in rows:
        cells = map(padded, row, widths, right_aligned)
        yield (" " * GAP).join(cells).rstrip() + "\n"


def cut(text: str, width: int) -> str:
    """Cut a visible text to at most `width`, with an ellipsis for the missing part."""
    if cell_len(text) <= width:
        return text
    if " " in text.strip():
        return set_cell_size(text, width - 1).rstrip() + "…"
    start_width = width // 3  # the end of a path says more
    end = set_cell_size(text[::-1], width - 1 - start_width)[::-1]
    return f"{set_cell_size(text, start_width)}…{end}"


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _is_uncut(text: str) -> bool:
    return len(text) <= _LEAST or _UNCUT.fullmatch(text) is not None


def _least(text: str) -> int:
    return _LEAST_OF_PATHS if "/" in text else _LEAST


def padded(text: str, width: int, right: bool) -> str:
    """Pad a visible text with spaces to a width: in front of it if `right`, else behind it."""
    padding = " " * (width - cell_len(text))
    return padding + text if right else text + padding


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _least_widths(
    names: Sequence[str], rows: Sequence[Sequence[str]], full_widths: Sequence[int]
) -> list[int]:
    """Return how narrow each column can be."""
    headers = widths_of([names])
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return [
        width if all(map(_is_uncut, column)) else min(width, max(header, *map(_least, column)))
        for width, header, column in zip(full_widths, headers, columns, strict=True)
    ]


def _omission_order(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right_aligned: Sequence[bool],
    omit_first: Sequence[str],
) -> list[int]:
    """Return the indexes of the columns in the order in which they are left out."""
    indexes = range(len(names) - 1, 0, -1)
    text_columns = [index for index in indexes if len(rows) > 1 and not right_aligned[index]]
    constant_columns = [index for index in text_columns if len({row[index] for row in rows}) == 1]
    first_columns = [names.index(name) for name in omit_first]
    return list(dict.fromkeys([*constant_columns, *first_columns, *indexes]))


def _fit(
    full_widths: Sequence[int], least: Sequence[int], order: Sequence[int], width: int | None
) -> tuple[list[int], list[int]]:
    """Return the indexes of the columns to show, and the width of each column."""
    columns, candidates = list(range(len(full_widths))), iter(order)
    if width is None:
        return columns, list(full_widths)
    while (
        _total([least[column] for column in columns]) > width
        and (index := next(candidates, None)) is not None
    ):
        columns.remove(index)
    widths = [
        max(least_width, min(full_width, width))
        for full_width, least_width in zip(full_widths, least, strict=True)
    ]
    while _total([widths[column] for column in columns]) > width:
        widest = max(columns, key=lambda column: widths[column] - least[column])
        if widths[widest] == least[widest]:
            break
        widths[widest] -= 1
    return columns, widths
