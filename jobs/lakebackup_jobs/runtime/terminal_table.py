"""Tables as lines of text: in full for files and pipes; on a terminal as wide as it is.

Texts too long for their column are cut: names, paths and keys in the middle, since their ends tell them
apart, sentences at the end. Ids, numbers and times are whole or not there. Columns that still have no room
are left out, and a last line names them.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

FIRST_ROWS = 200
"""Widths come from this many rows: the rest streams by."""
GAP = 2
"""Places between two columns."""
_LEAST, _LEAST_OF_PATHS = 16, 28
"""No text is cut to less than this many places."""
# Ids of backups, numbers, times: half of one is of no use.
_WHOLE = re.compile(r"\d{8}T\d{4,6}(Z(-[0-9a-f]{0,8})?)?|[-+]?[\d.,]+|\d{4}-\d\d-\d\d[T ][\d:.]+Z?")
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
    """A terminal that shows tables: how many places a line has, None: any number; and whether in colours."""

    width: int | None
    colours: bool

    def dim(self, text: str) -> str:
        """A text of little weight."""
        return self._style(text, _DIM)

    def bold(self, text: str) -> str:
        """A header."""
        return _styled(text, _BOLD)

    def state(self, text: str) -> str:
        """A state, in its colour; the text may be padded."""
        colour = _COLOURS.get(text.strip())
        return self._style(text, colour) if colour else text

    def _style(self, text: str, style: str) -> str:
        return _styled(text, style) if self.colours else text


def screen_of(out: TextIO, *, wide: bool = False) -> Screen | None:
    """The terminal that `out` is, None if it is none. `wide`: its lines may be of any length."""
    if not out.isatty():
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
    """The lines of a table of visible texts; columns of `numbers` are flush right. `all_columns` says how to
    see those that are left out.

    On a screen with a width, what has no room is left out: first texts that are the same throughout, then
    `first_out`, then from the right; never the first column.
    """
    rest = iter(rows)
    first = list(islice(rest, FIRST_ROWS))
    natural = widths_of([names, *first])
    if screen is None:
        header, *_ = table_lines([names], natural, numbers)
        yield header
        yield from table_lines(chain(first, rest), natural, numbers)
        return
    right = [*numbers, *[False] * (len(names) - len(numbers))]
    order = _out_order(names, first, right, first_out)
    shown, widths = _fit(natural, _least_widths(names, first, natural), order, screen.width)

    def cell(text: str, place: int) -> str:
        if screen.width is not None and not _is_whole(text):
            text = cut(text, max(widths[place], _least(text)))
        text = padded(text, widths[place], right[place])
        return screen.state(text) if is_state(names[place]) else text

    header, *_ = table_lines(
        [[names[place] for place in shown]],
        [widths[place] for place in shown],
        [right[place] for place in shown],
    )
    yield screen.bold(header.rstrip()) + "\n"
    for row in chain(first, rest):
        yield (" " * GAP).join(cell(row[place], place) for place in shown).rstrip() + "\n"
    if out := [name for place, name in enumerate(names) if place not in shown]:
        note = f"Left out ({all_columns}): {', '.join(out)}"
        yield screen.dim(cut(note, screen.width or len(note))) + "\n"


def wrapped_table(names: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen) -> Iterator[str]:
    """The lines of a table of visible texts whose last column, such as an explanation, wraps to fit the
    screen. The other columns are shown in full."""
    *widths, _ = widths_of([names, *rows])
    indent = sum(widths) + GAP * len(widths)
    header, *_ = table_lines([names], [*widths, 0])
    yield screen.bold(header.rstrip()) + "\n"
    for *cells, text in rows:
        first, *more = wrap(text, indent, screen.width) or [""]
        yield from table_lines([[*cells, first]], [*widths, 0])
        yield from (f"{' ' * indent}{line}\n" for line in more)


def wrap(text: str, indent: int, width: int | None) -> list[str]:
    """A visible text in lines that fit between an indent and a width, None: any; words stay whole where they
    can."""
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width - indent, _LEAST), break_on_hyphens=False)


def is_state(name: str) -> bool:
    """Whether a column of this name has states, which are shown in colours."""
    return name in _STATES


def has_room(names: Sequence[str], first: Sequence[Sequence[str]], width: int) -> bool:
    """Whether a table with all columns fits a width, with texts cut where they must be."""
    return _total(_least_widths(names, first, widths_of([names, *first]))) <= width


def widths_of(rows: Iterable[Sequence[str]]) -> list[int]:
    """How wide each column of some visible texts is on a terminal."""
    from rich.cells import cell_len  # some characters take two places

    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def table_lines(
    rows: Iterable[Sequence[str]], widths: Sequence[int], numbers: Sequence[bool] = ()
) -> Iterator[str]:
    """Rows of visible texts as lines of columns, whole; those of `numbers` are flush right."""
    right = [*numbers, *[False] * (len(widths) - len(numbers))]
    for row in rows:
        cells = map(padded, row, widths, right)
        yield (" " * GAP).join(cells).rstrip() + "\n"


def cut(text: str, width: int) -> str:
    """A visible text in at most `width` places, with an ellipsis for what is missing."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    if " " in text.strip():
        return set_cell_size(text, width - 1).rstrip() + "…"
    left = width // 3  # the end of a path says more
    end = set_cell_size(text[::-1], width - 1 - left)[::-1]
    return f"{set_cell_size(text, left)}…{end}"


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _is_whole(text: str) -> bool:
    return len(text) <= _LEAST or _WHOLE.fullmatch(text) is not None


def _least(text: str) -> int:
    return _LEAST_OF_PATHS if "/" in text else _LEAST


def padded(text: str, width: int, right: bool) -> str:
    """A visible text with spaces up to a width, in front of it for `right`."""
    from rich.cells import cell_len

    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _least_widths(names: Sequence[str], rows: Sequence[Sequence[str]], natural: Sequence[int]) -> list[int]:
    """How narrow each column can be."""
    headers = widths_of([names])
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return [
        width if all(map(_is_whole, column)) else min(width, max(header, *map(_least, column)))
        for width, header, column in zip(natural, headers, columns, strict=True)
    ]


def _out_order(
    names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], first_out: Sequence[str]
) -> list[int]:
    """The columns in the order in which they are left out."""
    places = range(len(names) - 1, 0, -1)
    texts = [place for place in places if len(rows) > 1 and not right[place]]
    same = [place for place in texts if len({row[place] for row in rows}) == 1]
    named = [names.index(name) for name in first_out]
    return list(dict.fromkeys([*same, *named, *places]))


def _fit(
    natural: Sequence[int], least: Sequence[int], order: Sequence[int], width: int | None
) -> tuple[list[int], list[int]]:
    """The columns that are shown, and the width of each column."""
    shown, waiting = list(range(len(natural))), iter(order)
    if width is None:
        return shown, list(natural)
    while _total([least[place] for place in shown]) > width and (out := next(waiting, None)) is not None:
        shown.remove(out)
    widths = [max(few, min(all_, width)) for all_, few in zip(natural, least, strict=True)]
    while _total([widths[place] for place in shown]) > width:
        widest = max(shown, key=lambda place: widths[place] - least[place])
        if widths[widest] == least[widest]:
            break
        widths[widest] -= 1
    return shown, widths
