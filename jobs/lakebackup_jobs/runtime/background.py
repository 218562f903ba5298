"""Runs work in a thread that neither Ctrl-C nor the end of the process waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def later(work: Callable[[], T]) -> Future[T]:
    """Start `work` in a daemon thread; returns the future with its result or its error."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller of result() gets it
            result.set_exception(error)

    threading.Thread(target=run, name="later", daemon=True).start()
    return result
