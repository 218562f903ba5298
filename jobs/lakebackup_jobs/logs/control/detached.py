"""The job of a log task as a process of its own on this machine, which outlives the one that starts it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from lakebackup.storage.uris import normalized
from lakebackup_jobs.runtime.child import tail
from lakebackup_jobs.runtime.java.jars import work_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


# Children of this process, which may run for long: polled now and then, so that none stays a zombie.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Launched:
    """A job that was started; it prints to `log`, after the first `before` bytes."""

    process: subprocess.Popen[bytes]
    log: Path
    before: int

    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def output(self) -> str:
        """The last lines that it printed."""
        return tail(self.log, since=self.before)


def launch(destination: str, catalog: str | None, name: str, options: Sequence[str]) -> Launched:
    """`lakebackup log run NAME` in a session of its own. Secrets come by its environment and files alone."""
    at = sha256(normalized(destination).encode()).hexdigest()[:8]  # names are of one destination
    log = work_folder() / "logs" / f"log-{name}-{at}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "lakebackup_jobs", "log", "run", name, "--repo", destination]
    command += ["--catalog", catalog] if catalog else []
    with log.open("ab") as output:
        before = output.tell()
        process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _started[:] = [one for one in _started if one.poll() is None] + [process]
    return Launched(process, log, before)
