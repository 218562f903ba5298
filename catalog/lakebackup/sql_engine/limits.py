"""Bounds of a person's SELECT: how long it may run, and how much memory the process may use for it.

DuckDB's memory limit counts tables and sorts, but not the strings that an expression builds: three nested
calls of `replace` make gigabytes out of a few words. So the process's own limit is set too, which counts
everything.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakebackup.errors import TimedOut, TooLarge

SECONDS = 300.0
# DuckDB's own limit, and as much again for the pages and records that are read for DuckDB.
BYTES = 2 << 30
_GRACE_S = 5.0
_REPEAT_S = 0.1
_STATUS = Path("/proc/self/status")


class Limits:
    """The bounds of one SELECT. Only time inside `running` counts: the reader of the rows may be slow.

    `interrupt` stops the query from another thread. `give_up`, if there is one, is called when the query
    still runs five seconds later. `seconds`: how long the query may run. `memory`: whether the process may
    grow by no more than BYTES (on Linux).
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
        self._seconds = self._seconds_left = seconds
        self._max_bytes = _data_bytes() + BYTES if memory and _STATUS.exists() else None
        self._expired = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Enforce the bounds while the block runs.

        Raises TimedOut, whatever error the interrupted query raises, and TooLarge when memory runs out.
        """
        finished = threading.Event()
        watch = threading.Thread(target=self._watch, args=(finished,), name="time limit", daemon=True)
        start = time.monotonic()
        watch.start()
        try:
            with _data_limit(self._max_bytes):
                yield
        except Exception as error:
            if self._expired:
                raise self._timed_out() from error
            if isinstance(error, MemoryError):
                raise TooLarge(
                    "The query needs more memory than it may use.",
                    hint="Ask for fewer rows or columns, or run it on Spark.",
                ) from error
            raise
        finally:
            finished.set()
            watch.join()  # a thread that still runs when the process ends may crash it
            self._seconds_left -= time.monotonic() - start

    def _watch(self, finished: threading.Event) -> None:
        if finished.wait(max(self._seconds_left, 0)):
            return
        self._expired = True
        deadline = time.monotonic() + _GRACE_S
        while True:
            with suppress(Exception):  # the engine may be closed, and its query with it
                self._interrupt()  # repeated, since the query may not have started at the first call
            if finished.wait(_REPEAT_S):
                return
            if self._give_up and time.monotonic() >= deadline:
                self._give_up(self._timed_out())
                return

    def _timed_out(self) -> TimedOut:
        return TimedOut(
            f"The query did not end within {self._seconds:g} s.",
            hint="Ask for less, or allow more time with --timeout 30m.",
        )


def _data_bytes() -> int:
    """The bytes of memory that count towards the process's limit; 0 where the system does not tell."""
    if not _STATUS.exists():
        return 0
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) << 10


@contextmanager
def _data_limit(max_bytes: int | None) -> Iterator[None]:
    """Limit the process's memory while the block runs; None: no limit. Beyond it an allocation fails, and
    DuckDB reports that as an error."""
    if max_bytes is None:
        yield
        return
    soft, hard = previous = resource.getrlimit(resource.RLIMIT_DATA)
    lowest = min(limit for limit in (soft, hard, max_bytes) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, previous)
