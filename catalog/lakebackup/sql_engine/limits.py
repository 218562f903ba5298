"""Bounds of a person's SELECT: how long it may run, and how much memory it may make the process take.

DuckDB counts what tables and sorts need, but not the texts that an expression builds: three nested calls of
`replace` make gigabytes out of a few words. The process's own limit counts everything.
"""

from __future__ import annotations

import resource
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup.errors import TimedOut, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 300.0
# DuckDB's own limit, and as much again for the pages and records that are read for it.
BYTES = 2 << 30
_GRACE_S = 5.0
_AGAIN_S = 0.1
_STATUS = Path("/proc/self/status")


class Limits:
    """The bounds of one SELECT. Only time inside `running` counts: the reader of the rows may be slow.

    `interrupt` stops the query from another thread; `give_up`, if given, is called when that has not ended it
    within five seconds. `memory`: whether the process may grow by no more than BYTES (on Linux).
    """

    def __init__(
        self,
        interrupt: Callable[[], object],
        *,
        seconds: float = SECONDS,
        give_up: Callable[[TimedOut], None] | None = None,
        memory: bool = True,
    ) -> None:
        self._interrupt, self._give_up = interrupt, give_up
        self._seconds = self._left = seconds
        self._most = _data() + BYTES if memory and _STATUS.exists() else None
        self._fired = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the bounds while the block runs. Raises TimedOut, whatever the interrupted query raises."""
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), name="time limit", daemon=True)
        began = time.monotonic()
        watch.start()
        try:
            with _data_limit(self._most):
                yield
        except Exception as error:
            if self._fired:
                raise self._timed_out() from error
            if isinstance(error, MemoryError):
                raise TooLarge(
                    "The query needs more memory than it may use.",
                    hint="Ask for fewer rows or columns, or run it on Spark.",
                ) from error
            raise
        finally:
            over.set()
            watch.join()  # one that is still there when the process ends may take it down
            self._left -= time.monotonic() - began

    def _watch(self, over: threading.Event) -> None:
        if over.wait(max(self._left, 0)):
            return
        self._fired = True
        patience = time.monotonic() + _GRACE_S
        while True:
            with suppress(Exception):  # the engine is gone, and with it the query
                self._interrupt()  # again and again: the query may have been about to start
            if over.wait(_AGAIN_S):
                return
            if self._give_up and time.monotonic() >= patience:
                self._give_up(self._timed_out())
                return

    def _timed_out(self) -> TimedOut:
        return TimedOut(
            f"The query did not end within {self._seconds:g} s.",
            hint="Ask for less, or allow more time with --timeout 30m.",
        )


def _data() -> int:
    """Bytes of memory that count towards the process's limit."""
    if not _STATUS.exists():
        return 0
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) << 10


@contextmanager
def _data_limit(most: int | None) -> Iterator[None]:
    """At most that much memory while the block runs: beyond, an allocation fails, as DuckDB reports it."""
    if most is None:
        yield
        return
    soft, hard = before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = min(limit for limit in (soft, hard, most) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
