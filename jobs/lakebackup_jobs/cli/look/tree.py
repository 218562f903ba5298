"""Prints backups as a tree for each source. Below the first backup of a chain, those that continue it are
listed at one depth, one below the other.

`in_order` has the algorithm: it walks the tree depth first, with a stack.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from lakebackup_jobs.cli.output.pager import paged
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.lifecycle.progress import display, reader_may_leave
from lakebackup_jobs.runtime.terminal_table import Screen
from lakebackup_jobs.runtime.terminal_text import visible

Row = dict[str, Any]
_UNLIMITED_WIDTH = 100_000
"""Width of a console that neither cuts nor wraps, so that an id stays one word, to copy it or to grep for
it."""


def in_order(rows: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of backup_tree in the order of the tree, each with its depth.

    The descendants of a backup are listed one level below it, all at the same depth, so that a long chain is
    not indented further and further. If several backups have the same parent, one of them continues the list:
    the last complete one, or else the last. Each of the others, which it replaced or which follow a branch
    point, is one level deeper than its parent, and begins a list of its own descendants.
    """
    backup_ids = {row["backup_id"] for row in rows}
    children: dict[str | None, list[Row]] = {}
    for row in rows:
        children.setdefault(row["parent"] if row["parent"] in backup_ids else None, []).append(row)
    stack = [(0, 1, row) for row in reversed(children.get(None, []))]
    while stack:
        depth, list_depth, row = stack.pop()
        yield depth, row
        dependents = children.get(row["backup_id"], [])
        if dependents:
            continuation = max(dependents, key=_rank)
            stack.append((list_depth, list_depth, continuation))
            stack += [
                (depth + 1, depth + 2, dependent)
                for dependent in reversed(dependents)
                if dependent is not continuation
            ]


def _rank(row: Row) -> tuple[bool, int, int]:
    return (row["state"] == "complete", row["place"], row["number"])


def write(
    rows: Sequence[Row],
    *,
    as_json: bool,
    screen: Screen | None = None,
    short: Callable[[str], str] | None = None,
) -> None:
    """Print the tree, or with `as_json` a line of JSON for each backup, in the tree's order, with its depth.

    `short` shortens ids. With it, times are printed as ages.
    """
    with nullcontext() if as_json else paged(), reader_may_leave():
        if as_json:
            for depth, row in in_order(rows):
                sys.stdout.write(json_line({"depth": depth, **row}))
        else:
            _draw(rows, screen, short)
        sys.stdout.flush()


def _draw(rows: Sequence[Row], screen: Screen | None, short: Callable[[str], str] | None) -> None:
    width = screen.width if screen else None
    console = Console(
        file=sys.stdout,
        width=width or _UNLIMITED_WIDTH,
        highlight=False,
        markup=False,
        force_terminal=screen is not None,
    )
    now_ms = time.time_ns() // 1_000_000 if short else None
    for source in dict.fromkeys(row["source"] for row in rows):
        root = Tree(visible(source))
        last_nodes: list[Tree] = []  # the last node at each depth
        for depth, row in in_order([row for row in rows if row["source"] == source]):
            del last_nodes[depth:]
            line = Text.from_ansi(_text(row, now_ms, screen, short), no_wrap=True, overflow="ellipsis")
            last_nodes.append((last_nodes[-1] if last_nodes else root).add(line))
        with console.capture() as text:
            console.print(root)
        sys.stdout.write(text.get())


def _text(
    row: Mapping[str, Any], now_ms: int | None, screen: Screen | None, short: Callable[[str], str] | None
) -> str:
    state = row["state"] if row["state"] != "complete" or row["intact"] else "not intact"
    cells = [
        visible(short(row["backup_id"]) if short else row["backup_id"]),
        visible(f"{row['kind']} {row['level']}"),
        display("end_ts", row["end_ts"], now_ms),
        screen.state(visible(state)) if screen else visible(state),
        f"{row['entries']} entries",
        display("bytes", row["bytes"]),
    ]
    return "  ".join([*cells, f"branch {row['branch']}"] if row["branch"] else cells)
