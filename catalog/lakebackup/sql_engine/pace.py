"""A limit of bytes a second, which the tasks of a job share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_in_thread = threading.local()


class Throttle:
    """Lets a task read or write no more than `rate` bytes a second; None: no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._start = time.monotonic()
        self._spent_bytes = 0

    def spend(self, count: int) -> None:
        """Count `count` bytes, and wait until the rate allows that they have been read or written."""
        if self._rate:
            self._spent_bytes += count
            wait_s = self._spent_bytes / self._rate - (time.monotonic() - self._start)
            if wait_s > 0:
                time.sleep(wait_s)


@contextmanager
def paced(rate: float | None) -> Iterator[None]:
    """Limit this thread to `rate` bytes a second while the block runs; None: no limit."""
    previous = getattr(_in_thread, "throttle", None)
    _in_thread.throttle = Throttle(rate)
    try:
        yield
    finally:
        _in_thread.throttle = previous


def spend_of(_records: int, size: int) -> None:
    """Call `spend` with `size`. Its parameters are those of the callbacks that count a task's records and
    bytes."""
    spend(size)


def spend(count: int) -> None:
    """Count `count` bytes of this thread's task, and wait until its rate allows them; see `paced`."""
    if throttle := getattr(_in_thread, "throttle", None):
        throttle.spend(count)
