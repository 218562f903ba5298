"""A limit of bytes a second, which the tasks of a job share."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_in_thread = threading.local()


class Throttle:
    """Lets a task read or write no more than `rate` bytes a second; None: as fast as it goes."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._spent = 0

    def spend(self, count: int) -> None:
        """Wait until as many bytes more may have been read or written."""
        if self._rate:
            self._spent += count
            early = self._spent / self._rate - (time.monotonic() - self._began)
            if early > 0:
                time.sleep(early)


@contextmanager
def paced(rate: float | None) -> Iterator[None]:
    """What this thread spends inside the block goes at this rate."""
    before = getattr(_in_thread, "throttle", None)
    _in_thread.throttle = Throttle(rate)
    try:
        yield
    finally:
        _in_thread.throttle = before


def spend_of(_records: int, size: int) -> None:
    """`spend`, as what counts records and bytes of a task is called."""
    spend(size)


def spend(count: int) -> None:
    """Wait until the task of this thread may have read or written as many bytes more."""
    if throttle := getattr(_in_thread, "throttle", None):
        throttle.spend(count)
