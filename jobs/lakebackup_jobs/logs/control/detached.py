"""Starts the job of a log task on this machine, as a process that outlives the one that starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from lakebackup.storage.uris import normalized
from lakebackup_jobs.runtime.child import tail
from lakebackup_jobs.runtime.java.jars import work_folder

# Children of this process, which may run for long. Each launch polls them, so that none stays a zombie.
_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Launched:
    """A job that was started. It appends its output to `log`, which had `log_start` bytes at the start."""

    process: subprocess.Popen[bytes]
    log: Path
    log_start: int

    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.process.poll() is not None

    def output(self) -> str:
        """The last lines that the job printed."""
        return tail(self.log, since=self.log_start)


def launch(destination: str, catalog: str | None, name: str, options: Sequence[str]) -> Launched:
    """Start `lakebackup log run NAME` in a session of its own; returns the job.

    `options`: more flags. They hold no secrets: the job reads those from its environment and from files.
    """
    digest = sha256(normalized(destination).encode()).hexdigest()[:8]  # Destinations may share names.
    log = work_folder() / "logs" / f"log-{name}-{digest}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "lakebackup_jobs", "log", "run", name, "--repo", destination]
    command += ["--catalog", catalog] if catalog else []
    with log.open("ab") as output:
        log_size = output.tell()
        process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _children[:] = [child for child in _children if child.poll() is None] + [process]
    return Launched(process, log, log_size)
