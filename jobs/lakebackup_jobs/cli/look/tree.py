"""A source's backups as a tree: what the newest of each chain needs is in one line, all else beside it."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli.output.pager import paged
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.lifecycle.progress import display, reader_may_leave
from lakebackup_jobs.runtime.terminal_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.tree import Tree

    from lakebackup_jobs.runtime.terminal_table import Screen

Row = dict[str, Any]
_UNFOLDED = 100_000
"""Width of a console that neither cuts nor folds: an id must stay one word, to copy it or to grep for it."""


def in_order(rows: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    """The rows of backup_tree, each with its depth.

    A line is a backup and, one deeper, each that depends on the one before. Of several that depend on one,
    the last continues the line; each of the others, which that one replaced or which lie behind a branch
    point, begins a line of its own one deeper than its parent.
    """
    known = {row["backup_id"] for row in rows}
    children: dict[str | None, list[Row]] = {}
    for row in rows:
        children.setdefault(row["parent"] if row["parent"] in known else None, []).append(row)
    waiting = [(0, 1, row) for row in reversed(children.get(None, []))]
    while waiting:
        depth, following, row = waiting.pop()
        yield depth, row
        on_it = children.get(row["backup_id"], [])
        if on_it:
            last = max(on_it, key=_lasting)
            waiting.append((following, following, last))
            waiting += [(depth + 1, depth + 2, other) for other in reversed(on_it) if other is not last]


def _lasting(row: Row) -> tuple[bool, int, int]:
    return (row["state"] == "complete", row["place"], row["number"])


def write(
    rows: Sequence[Row],
    *,
    as_json: bool,
    screen: Screen | None = None,
    short: Callable[[str], str] | None = None,
) -> None:
    """Draw the tree, or write a line of JSON a backup in the tree's order, with its depth. `short`: makes
    ids short, and times become ages."""
    with nullcontext() if as_json else paged(), reader_may_leave():
        if as_json:
            for depth, row in in_order(rows):
                sys.stdout.write(json_line({"depth": depth, **row}))
        else:
            _draw(rows, screen, short)
        sys.stdout.flush()


def _draw(rows: Sequence[Row], screen: Screen | None, short: Callable[[str], str] | None) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    width = screen.width if screen else None
    console = Console(
        file=sys.stdout,
        width=width or _UNFOLDED,
        highlight=False,
        markup=False,
        force_terminal=screen is not None,
    )
    now = time.time_ns() // 1_000_000 if short else None
    for source in dict.fromkeys(row["source"] for row in rows):
        top = Tree(visible(source))
        last: list[Tree] = []  # at each depth
        for depth, row in in_order([row for row in rows if row["source"] == source]):
            del last[depth:]
            line = Text.from_ansi(_text(row, now, screen, short), no_wrap=True, overflow="ellipsis")
            last.append((last[-1] if last else top).add(line))
        with console.capture() as text:
            console.print(top)
        sys.stdout.write(text.get())


def _text(
    row: Mapping[str, Any], now: int | None, screen: Screen | None, short: Callable[[str], str] | None
) -> str:
    state = row["state"] if row["state"] != "complete" or row["intact"] else "not intact"
    shown = [
        visible(short(row["backup_id"]) if short else row["backup_id"]),
        visible(f"{row['kind']} {row['level']}"),
        display("end_ts", row["end_ts"], now),
        screen.state(visible(state)) if screen else visible(state),
        f"{row['entries']} entries",
        display("bytes", row["bytes"]),
    ]
    return "  ".join([*shown, f"branch {row['branch']}"] if row["branch"] else shown)
