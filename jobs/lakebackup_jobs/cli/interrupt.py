"""Ctrl-C ends a command within seconds, with one message and no process left behind.

A terminal sends SIGINT to every process of the foreground group. Spark's JVM and its Python workers ignore
it (see `lakebackup_jobs.runtime.java.jvm`): only this process decides how the command ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Interrupted:
    """The handler of Ctrl-C. True once it was pressed: later errors come from the interruption."""

    def __init__(self) -> None:
        self.pressed = False

    def __bool__(self) -> bool:
        return self.pressed

    def __call__(self, *_: object) -> None:
        """Handle the signal. The next Ctrl-C ends the process at once."""
        self.pressed = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        logging.disable()  # Py4J would report the call that this interrupts, with its stack
        session = sys.modules.get("lakebackup_jobs.runtime.session")
        if session is not None and hasattr(session, "cancel_jobs"):  # else another thread imports it
            session.cancel_jobs()
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupted]:
    """Handle Ctrl-C while the block runs, unless the process ignores it or another thread owns signals."""
    interrupted = Interrupted()
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
        logging.disable(logging.NOTSET)


@contextmanager
def stopped_by_signals(stop: threading.Event, note: str = "") -> Iterator[None]:
    """While the block runs, SIGINT or SIGTERM sets `stop`; the block must then end by itself.

    `note` is shown on a terminal. A second signal goes to the handler from before the block.
    """
    before: dict[int, Any] = {}

    def handle(*_: object) -> None:
        stop.set()
        for number, handler in before.items():
            signal.signal(number, handler)
        if note and sys.stderr.isatty():
            os.write(
                sys.stderr.fileno(), f"\n{note}\n".encode()
            )  # not print: the signal may have interrupted one

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_spark() -> None:
    """End the JVM and its workers, if this process started one."""
    jvm = sys.modules.get("lakebackup_jobs.runtime.java.jvm")
    if jvm is not None:
        jvm.end()


def message(arguments: Sequence[str]) -> str:
    """The message for an interrupted command."""
    verb = arguments[0] if arguments else ""
    if verb == "backup":
        return "Interrupted; no unfinished backup was published. Run the same command again to resume."
    if verb == "restore":
        return "Interrupted; the restore is not complete. Run the same command again to resume."
    if verb in ("compact", "merge", "prune", "archive", "catalog", "log"):
        return "Interrupted; nothing unfinished was published. Run the same command again to resume."
    return "Interrupted."
