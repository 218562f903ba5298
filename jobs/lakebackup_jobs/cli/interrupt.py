"""Ends a command within seconds after Ctrl-C, SIGTERM or SIGHUP, with one message and no process left behind.

A terminal sends SIGINT to every process of the foreground group. Spark's JVM and its Python workers ignore it
(see `lakebackup_jobs.runtime.java.jvm`), so only this process decides how the command ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# A process manager sends SIGTERM, and a terminal that closes sends SIGHUP. Leases are released after both.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The exit codes of interrupted commands: 128 plus the signal's number, like in shells.
EXIT_CODES = frozenset(128 + number for number in _SIGNALS)


def _ignore_signal(*_: object) -> None:
    """Ignore a signal to a command that is ending. Unlike SIG_IGN, child processes do not inherit this."""


class Interrupted:
    """The handler of the signals that end a command.

    It is true once a signal came, since later errors may come from the interruption. `exit_code`: the exit
    code for that signal.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.exit_code = 128 + signal.SIGINT

    def __bool__(self) -> bool:
        return self.pressed

    def __call__(self, number: int = signal.SIGINT, _: object = None) -> None:
        """Handle a signal. The next Ctrl-C ends the process at once.

        Later SIGTERM and SIGHUP are ignored, because process managers and terminals may send them twice.
        """
        self.pressed = True
        self.exit_code = 128 + number
        for signal_number in _SIGNALS:
            if signal.getsignal(signal_number) is self:
                signal.signal(
                    signal_number, signal.SIG_DFL if signal_number == signal.SIGINT else _ignore_signal
                )
        logging.disable()  # otherwise Py4J would log the interrupted call with its stack
        session = sys.modules.get("lakebackup_jobs.runtime.session")
        if session is not None and hasattr(
            session, "cancel_jobs"
        ):  # otherwise another thread is importing it
            session.cancel_jobs()
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupted]:
    """Handle signals while the block runs, except those that the process ignores (`nohup`).

    Outside the main thread it handles none.
    """
    interrupted = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    old_handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    old_handlers = {
        number: handler for number, handler in old_handlers.items() if handler is not signal.SIG_IGN
    }
    for number in old_handlers:
        signal.signal(number, interrupted)
    try:
        yield interrupted
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
            if isinstance(handler, Interrupted) and interrupted:  # this command ran inside another one
                handler.exit_code = interrupted.exit_code
        logging.disable(logging.NOTSET)


@contextmanager
def stopped_by_signals(stop: threading.Event, note: str = "") -> Iterator[None]:
    """While the block runs, SIGINT, SIGTERM or SIGHUP sets `stop`. Then the block must end by itself.

    A signal that the process ignores stays ignored. A terminal shows `note`. A second signal goes to the
    handler from before the block.
    """
    old_handlers: dict[int, Any] = {}

    def handle(*_: object) -> None:
        stop.set()
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        if note and sys.stderr.isatty():
            os.write(
                sys.stderr.fileno(), f"\n{note}\n".encode()
            )  # not print: the signal may have interrupted one

    caught = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    old_handlers = {number: signal.signal(number, handle) for number in caught}
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
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
