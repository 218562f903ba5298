"""Runs the command in a process that a test can kill."""

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


class HasFolder(Protocol):
    """An object with a folder; a run's output goes beside this folder."""

    @property
    def folder(self) -> Path: ...


class Run:
    """The command in its own process. Every process that it starts has a mark in its environment."""

    def __init__(self, lab: HasFolder, *arguments: str) -> None:
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

    def kill_when(self, reached: Callable[[], bool], description: str) -> None:
        """Send SIGKILL as soon as a condition holds; fails if the command ends before."""
        deadline = time.monotonic() + 120
        try:
            while not reached():
                exit_code = self.process.poll()
                assert exit_code is None, (
                    f"ended with {exit_code} before {description}: {self.log.read_text()[-2000:]}"
                )
                assert time.monotonic() < deadline, f"never: {description}"
                time.sleep(0.001)
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL, and wait until everything that the command started has ended."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        truth.until(
            lambda: not self.running_processes(),
            f"the JVM and the workers end: {self.running_processes()}",
            120,
        )

    def end(self, number: int, seconds: float = 60) -> int:
        """Send a signal, SIGINT as a terminal does; returns the exit code when the whole run has ended."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        code = self.process.wait(seconds)
        truth.until(
            lambda: not self.running_processes(),
            f"the JVM and the workers end: {self.running_processes()}",
            120,
        )
        return code

    def running_processes(self) -> list[str]:
        """The command lines of this run's processes that still run."""
        commands = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    commands.append(" ".join(process.cmdline())[:100])
        return commands


def _take_terminal() -> None:
    """Make standard input this process's terminal, whose Ctrl-C counts. A job in the background ignores it,
    and so would what the job starts."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class TerminalRun(Run):
    """The command in the foreground of a terminal, as a person runs it; `output` is the terminal's output."""

    def __init__(self, *arguments: str) -> None:
        self.mark = uuid4().hex
        self.output = b""
        self._keys, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakebackup_jobs", *arguments],
            env={**os.environ, MARK: self.mark, "TERM": "xterm", "COLUMNS": "200"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self._keys)

    def until(self, reached: Callable[[], bool], description: str, seconds: float = 120) -> None:
        """Wait for a condition while reading the output; fails if the command ends first."""
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.process.poll() is None, f"ended before {description}: {self.output.decode()[-2000:]}"
            assert time.monotonic() < deadline, f"never: {description}: {self.output.decode()[-2000:]}"
            self._read()

    def type(self, text: str) -> None:
        """Press the keys of a text; `\\r` is Enter."""
        os.write(self._keys, text.encode())

    @property
    def is_raw(self) -> bool:
        """Whether the command reads single keys, including Ctrl-C."""
        return not termios.tcgetattr(self._keys)[3] & termios.ISIG

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C: the terminal signals every process of its foreground group."""
        os.write(self._keys, b"\x03")

    def exit_code(self, seconds: float = 60) -> int:
        """The exit code, once the command and all that it started have ended."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.output.decode()[-2000:]}"
            self._read()
        self._read()
        truth.until(
            lambda: not self.running_processes(),
            f"the JVM and the workers end: {self.running_processes()}",
            10,
        )
        return self.process.returncode

    def _read(self) -> None:
        with suppress(OSError):  # EIO: every process of the terminal has ended
            while select.select([self._keys], [], [], 0.05)[0]:
                self.output += os.read(self._keys, 65536)
