"""Servers that this process starts and that must not outlive it."""

from __future__ import annotations

import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Child:
    """A running server whose output goes to a file.

    A shell waits for the end of a pipe that only this process holds open, so that the server is killed even
    when this process dies by SIGKILL. `user` is the number of the account that it runs as, if not this one.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
    ) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                user=user,
                start_new_session=True,
            )
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -9 "$0"', str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        """Whether the server has not ended yet."""
        return self.process.poll() is None

    def stop(self, seconds: float = 20) -> None:
        """Asks it to end, and kills it when it has not after `seconds`."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Ends it at once (SIGKILL)."""
        self._watch.kill()  # first: after the server is reaped its number may belong to another process
        self._watch.wait()
        if self._watch.stdin:
            self._watch.stdin.close()
        self.process.kill()
        self.process.wait()


def tail(log: Path, lines: int = 15, *, since: int = 0) -> str:
    """The last lines of a log, for an error message; `since`: none that begin before this byte."""
    with suppress(OSError), log.open("rb") as stream:
        stream.seek(max(since, log.stat().st_size - 16_384))
        return "\n".join(stream.read().decode("utf-8", "replace").splitlines()[-lines:])
    return ""


def free_port() -> int:
    """A port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
