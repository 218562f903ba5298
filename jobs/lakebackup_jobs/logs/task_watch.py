"""What a task is to do, checked often: the table of tasks is only read when it has a new version."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakebackup.sql_engine.delta.log import folder_of
from lakebackup.sql_engine.delta.table import newest_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup_jobs.logs.task import Task

LEAST_S = 1.0
#: In object storage each look is a paid request: while nothing changes, looks become this rare.
MOST_S = 5.0
#: A table put in the place of this one may have the same version.
REREAD_S = 60.0


class TaskWatch:
    """A task, kept from the last time that the table `uri` was read. `read` reads it; errors are its own.

    A look at a folder lists it. In object storage it is one request: each second, later every five.
    """

    def __init__(
        self, uri: str, read: Callable[[], Task], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._uri, self._read, self._clock = uri, read, clock
        self._most = LEAST_S if folder_of(uri) else MOST_S
        self._every = LEAST_S
        self._due = self._reread = float("-inf")
        self._version: int | None = None
        self._task: Task | None = None

    def look(self) -> Task:
        """The task as it is now, or was at most five seconds ago."""
        now = self._clock()
        if self._task is not None and now < self._due:
            return self._task
        version = self._newest()
        if self._task is None or version is None or version != self._version or now >= self._reread:
            self._every = LEAST_S if version != self._version else self._every
            self._task = self._read()
            self._version, self._reread = version, now + REREAD_S
        else:
            self._every = min(2 * self._every, self._most)
        # A little early: a caller that looks each second gets a new answer each second.
        self._due = now + 0.9 * self._every
        return self._task

    def forget(self) -> None:
        """Make the next look read the table."""
        self._task = None

    def _newest(self) -> int | None:
        try:
            return newest_version(self._uri)
        except (OSError, ValueError):  # no log there: reading the table raises the right error
            return None
