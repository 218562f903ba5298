"""Starts servers that must not outlive this process."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path


class Child:
    """A running server whose output goes to a file.

    A shell reads a pipe that only this process holds open. The pipe ends with this process, even if it dies
    by SIGKILL, and then the shell kills the server. `user`: the number of the account that the server runs
    as; None is this process's account.
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
        """Whether the server is still running."""
        return self.process.poll() is None

    def stop(self, seconds: float = 20) -> None:
        """Ask the server to end (SIGTERM), and kill it if it has not ended after `seconds`."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End the server at once (SIGKILL)."""
        self._watch.kill()  # first, since the number of a reaped server may belong to another process
        self._watch.wait()
        if self._watch.stdin:
            self._watch.stdin.close()
        self.process.kill()
        self.process.wait()


def tail(log: Path, lines: int = 15, *, since: int = 0) -> str:
    """Return the last lines of a log, for an error message. `since`: the byte from which it is read."""
    with suppress(OSError), log.open("rb") as stream:
        stream.seek(max(since, log.stat().st_size - 16_384))
        return "\n".join(stream.read().decode("utf-8", "replace").splitlines()[-lines:])
    return ""


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
