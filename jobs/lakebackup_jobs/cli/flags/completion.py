"""What a shell completes from the catalog: ids of backups, sources, topics. Says nothing of what fails."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

_LONGEST_S = 3.0
_PLAIN = re.compile(r"[\w.@%+,/][\w.@%+=:,/-]*", re.ASCII)


def backups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of backups, the newest first, and `latest`."""
    ids = "SELECT backup_id FROM backups ORDER BY finished_time DESC NULLS LAST"
    return _beginning(incomplete, ["latest", *_asked(ctx, ids)])


def sources(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of sources."""
    return _beginning(incomplete, _asked(ctx, "SELECT DISTINCT source FROM backups ORDER BY 1"))


def backups_and_sources(ctx: typer.Context, incomplete: str) -> list[str]:
    """Both: where an argument takes either."""
    return [*backups(ctx, incomplete), *sources(ctx, incomplete)]


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of topics that were backed up."""
    of_topics = "SELECT source FROM backups WHERE source_kind = 'kafka'"
    select = f"SELECT DISTINCT scope FROM rpo WHERE source IN ({of_topics}) ORDER BY 1"  # noqa: S608 - no values
    return _beginning(incomplete, _asked(ctx, select))


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    """Those that begin so. None that a shell would read as more than a word: it inserts them as they are."""
    return [word for word in words if word.startswith(incomplete) and _PLAIN.fullmatch(word)]


def _asked(ctx: typer.Context, select: str) -> list[str]:
    """The first column of a SELECT on the catalog that the flags so far or the settings name."""
    with suppress(Exception), _in_time():
        from lakebackup.config import load
        from lakebackup_jobs.connection import Connection, use

        given = {"repo": ctx.params.get("repo"), "catalog": ctx.params.get("catalog")}
        found = load(given, ctx.params.get("settings_file"))
        use(found)
        connection = Connection(found, warn=lambda _: None)
        return [str(next(iter(row.values()))) for row in connection.sql(select)]
    return []


@contextmanager
def _in_time() -> Iterator[None]:
    """End the process, which only completes, where a catalog does not answer soon."""

    def end(_signal: int, _frame: Any) -> None:
        os._exit(0)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
