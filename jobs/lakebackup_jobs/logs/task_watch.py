"""Watches what a task is to do. It checks often, but reads the table of tasks only for a new version."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakebackup.sql_engine.delta.log import folder_of
from lakebackup.sql_engine.delta.table import newest_version
from lakebackup_jobs.logs.task import Task

LEAST_S = 1.0
#: In object storage each look is a paid request. While nothing changes, the interval grows to this.
MOST_S = 5.0
#: Reads the table after this time in any case: a table that replaced this one may have the same version.
REREAD_S = 60.0


class TaskWatch:
    """Caches a task of the table at `uri`. `read` reads the task; its errors pass through.

    To look at a local table lists its folder. In object storage a look is one request: one each second, and
    one every five seconds while nothing changes.
    """

    def __init__(
        self, uri: str, read: Callable[[], Task], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._uri, self._read, self._clock = uri, read, clock
        self._longest = LEAST_S if folder_of(uri) else MOST_S
        self._interval = LEAST_S
        self._due = self._reread = float("-inf")
        self._version: int | None = None
        self._task: Task | None = None

    def look(self) -> Task:
        """The task as it is now, or was at most MOST_S seconds ago."""
        seconds = self._clock()
        if self._task is not None and seconds < self._due:
            return self._task
        version = self._newest_version()
        if self._task is None or version is None or version != self._version or seconds >= self._reread:
            self._interval = LEAST_S if version != self._version else self._interval
            self._task = self._read()
            self._version, self._reread = version, seconds + REREAD_S
        else:
            self._interval = min(2 * self._interval, self._longest)
        # A little early, so that a caller that looks each second gets a new answer each second.
        self._due = seconds + 0.9 * self._interval
        return self._task

    def forget(self) -> None:
        """Make the next look read the table."""
        self._task = None

    def _newest_version(self) -> int | None:
        try:
            return newest_version(self._uri)
        except (OSError, ValueError):  # There is no log: `read` then raises the right error.
            return None
