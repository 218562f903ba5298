"""Ctrl-C, SIGTERM and SIGHUP end a command within seconds, with one message and no process left behind.

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


# A process manager ends what it runs with SIGTERM, a terminal that closes with SIGHUP: leases end with both.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The exit codes of interrupted commands: 128 and the signal's number, as shells have it.
EXIT_CODES = frozenset(128 + number for number in _SIGNALS)


def _no_more(*_: object) -> None:
    """Handle a signal to a command that is ending. What it starts meanwhile does not inherit this."""


class Interrupted:
    """The handler of the signals that end a command. True once one came: later errors come from it.

    `exit_code`: the one to end with then.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.exit_code = 128 + signal.SIGINT

    def __bool__(self) -> bool:
        return self.pressed

    def __call__(self, number: int = signal.SIGINT, _: object = None) -> None:
        """Handle a signal. The next Ctrl-C ends the process at once.

        SIGTERM and SIGHUP do nothing more: process managers and terminals may send them twice.
        """
        self.pressed = True
        self.exit_code = 128 + number
        for other in _SIGNALS:
            if signal.getsignal(other) is self:
                signal.signal(other, signal.SIG_DFL if other == signal.SIGINT else _no_more)
        logging.disable()  # Py4J would report the call that this interrupts, with its stack
        session = sys.modules.get("lakebackup_jobs.runtime.session")
        if session is not None and hasattr(session, "cancel_jobs"):  # else another thread imports it
            session.cancel_jobs()
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupted]:
    """Handle signals while the block runs, but those that the process ignores (`nohup`), and none where
    another thread owns them."""
    interrupted = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, interrupted)
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
            if isinstance(handler, Interrupted) and interrupted:  # a command that this one runs was ended
                handler.exit_code = interrupted.exit_code
        logging.disable(logging.NOTSET)


@contextmanager
def stopped_by_signals(stop: threading.Event, note: str = "") -> Iterator[None]:
    """While the block runs, SIGINT, SIGTERM or SIGHUP sets `stop`; the block must then end by itself.

    A signal that the process ignores stays ignored.

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

    caught = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in caught}
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
