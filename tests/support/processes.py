"""The command in a process of its own, to be killed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self
from uuid import uuid4

import psutil
from tests.support import kafka_truth as truth

MARK = "LAKEBACKUP_TESTED_RUN"


class Place(Protocol):
    """What has a folder, beside which a run's output goes."""

    @property
    def folder(self) -> Path: ...


class Run:
    """The command in a process of its own; all that it starts carries a mark."""

    def __init__(self, lab: Place, *arguments: str) -> None:
        self.mark = uuid4().hex
        self.log = lab.folder.parent / f"{self.mark}.log"
        command = [sys.executable, "-m", "lakebackup_jobs", *arguments, "--master", "local[2]"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, MARK: self.mark},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill_when(self, reached: Callable[[], bool], what: str) -> None:
        """SIGKILL as soon as a condition holds; fails when the command ended before."""
        deadline = time.monotonic() + 120
        try:
            while not reached():
                ended = self.process.poll()
                assert ended is None, f"ended with {ended} before {what}: {self.log.read_text()[-2000:]}"
                assert time.monotonic() < deadline, f"never: {what}"
                time.sleep(0.001)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and nothing that the command started goes on."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        truth.until(lambda: not self.left(), f"the JVM and the workers end: {self.left()}", 120)

    def end(self, number: int, seconds: float = 60) -> int:
        """Send a signal, SIGINT as a terminal does; returns the exit code. Nothing of the run goes on."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        code = self.process.wait(seconds)
        truth.until(lambda: not self.left(), f"the JVM and the workers end: {self.left()}", 120)
        return code

    def left(self) -> list[str]:
        """Processes of this run that are still there."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline())[:100])
        return found


class TerminalRun(Run):
    """The command as a person runs it: in the foreground of a terminal, of which `shown` is the output."""

    def __init__(self, *arguments: str) -> None:
        self.mark = uuid4().hex
        self.shown = b""
        self._keys, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakebackup_jobs", *arguments],
            env={**os.environ, MARK: self.mark, "TERM": "xterm", "COLUMNS": "200"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self._keys)

    def until(self, reached: Callable[[], bool], what: str, seconds: float = 120) -> None:
        """Wait for a condition, reading what is shown; fails when the command ends first."""
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.process.poll() is None, f"ended before {what}: {self.shown.decode()[-2000:]}"
            assert time.monotonic() < deadline, f"never: {what}: {self.shown.decode()[-2000:]}"
            self._read()

    def type(self, text: str) -> None:
        """Press the keys of a text; `\\r` is Enter."""
        os.write(self._keys, text.encode())

    @property
    def is_raw(self) -> bool:
        """Whether the command takes each key by itself, Ctrl-C too."""
        return not termios.tcgetattr(self._keys)[3] & termios.ISIG

    def press_ctrl_c(self) -> None:
        """The terminal then signals every process of its foreground group."""
        os.write(self._keys, b"\x03")

    def ended(self, seconds: float = 15) -> int:
        """The exit code, once the command and all that it started have ended."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.shown.decode()[-2000:]}"
            self._read()
        self._read()
        truth.until(lambda: not self.left(), f"the JVM and the workers end: {self.left()}", 10)
        return self.process.returncode

    def _read(self) -> None:
        with suppress(OSError):  # EIO: every process of the terminal has ended
            while select.select([self._keys], [], [], 0.05)[0]:
                self.shown += os.read(self._keys, 65536)
