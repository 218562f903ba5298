"""Completes words of a command line from the catalog: ids of backups, sources, topics. Hides all errors."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from lakebackup.config import load
from lakebackup_jobs.connection import Connection, use

_LONGEST_S = 3.0
_PLAIN = re.compile(r"[\w.@%+,/][\w.@%+=:,/-]*", re.ASCII)


def backups(ctx: typer.Context, incomplete: str) -> list[str]:
    """`latest` and ids of backups, the newest first."""
    ids = "SELECT backup_id FROM backups ORDER BY finished_time DESC NULLS LAST"
    return _starting_with(incomplete, ["latest", *_first_column(ctx, ids)])


def sources(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of sources."""
    return _starting_with(incomplete, _first_column(ctx, "SELECT DISTINCT source FROM backups ORDER BY 1"))


def backups_and_sources(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of backups and names of sources, for an argument that takes either."""
    return [*backups(ctx, incomplete), *sources(ctx, incomplete)]


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of topics that were backed up."""
    topic_sources = "SELECT source FROM backups WHERE source_kind = 'kafka'"
    select = f"SELECT DISTINCT scope FROM rpo WHERE source IN ({topic_sources}) ORDER BY 1"  # noqa: S608 - no values
    return _starting_with(incomplete, _first_column(ctx, select))


def _starting_with(incomplete: str, words: Iterable[str]) -> list[str]:
    """The words that start with `incomplete`, except those that a shell would have to quote.

    A shell inserts completions unquoted.
    """
    return [word for word in words if word.startswith(incomplete) and _PLAIN.fullmatch(word)]


def _first_column(ctx: typer.Context, select: str) -> list[str]:
    """The first column of a SELECT over the catalog that the flags so far or the settings name."""
    with suppress(Exception), _time_limit():
        flags = {"repo": ctx.params.get("repo"), "catalog": ctx.params.get("catalog")}
        settings = load(flags, ctx.params.get("settings_file"))
        use(settings)
        connection = Connection(settings, warn=lambda _: None)
        return [str(next(iter(row.values()))) for row in connection.sql(select)]
    return []


@contextmanager
def _time_limit() -> Iterator[None]:
    """End the process when the block takes too long. The process does nothing but complete."""

    def end(_signal: int, _frame: Any) -> None:
        os._exit(0)

    old_handler = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
