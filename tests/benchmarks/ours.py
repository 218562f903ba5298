"""lakebackup: cold, as a command with its JVM's start and end, and warm, in a session that lives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.benchmarks.measure import Cost, MeasuringError, Tree, of_command

COMMAND = [sys.executable, "-m", "lakebackup_jobs"]


def cold_backup(bootstrap: str, topic: str, destination: Path, log: Path) -> Cost:
    """`lakebackup backup topics`, a full one."""
    # The peers save records alone, so groups are left out.
    words = ["backup", "topics", topic, "--groups", "none", "--mode", "full"]
    where = ["--bootstrap-servers", bootstrap, "--to", str(destination)]
    return of_command([*COMMAND, *words, *where], log)


def cold_restore(bootstrap: str, topic: str, destination: Path, target: str, log: Path) -> Cost:
    """`lakebackup restore topics` of all of it under another name."""
    to = ["--to", f"kafka://{bootstrap}", "--map", f"{topic}={target}"]
    return of_command([*COMMAND, "restore", "topics", topic, "--from", str(destination), *to], log)


class Session:
    """A process with a Spark session, the JVM and the Python workers below it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.warm"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._tree = Tree(self._process.pid)
        self._answer()

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """The answer. Raises MeasuringError with the end of its log when the session died of it."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def measured(self, verb: str, **arguments: Any) -> tuple[Cost, dict[str, Any]]:
        """The answer and what it cost in the whole tree."""
        before = self._tree.cpu_s()
        with self._tree.sampled() as peak:
            answer = self.ask(verb, **arguments)
        return Cost(answer["seconds"], self._tree.cpu_s() - before, peak[0]), answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise MeasuringError(
                f"The warm session ended:\n{self._log.read_text('utf-8', 'replace')[-3000:]}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
