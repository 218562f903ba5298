"""lakebackup: the same command cold, a process with its JVM's start and end, and warm in a living session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.benchmarks.measure import Cost, MeasuringError, Run, Sample, Tree, of_command

COLD, WARM = "lakebackup, cold command", "lakebackup, warm session"
COMMAND = [sys.executable, "-m", "lakebackup_jobs"]


def cold(log: Path) -> Run:
    """Runs commands as processes of their own."""
    return lambda words: Sample(of_command([*COMMAND, *map(str, words)], log))


def backup_topics(bootstrap: str, topic: str, destination: Path, *more: str) -> list[object]:
    """The words of a backup of one topic."""
    return ["backup", "topics", topic, "--bootstrap-server", bootstrap, "--repo", destination, *more]


def restore_topics(bootstrap: str, topic: str, destination: Path, target: str) -> list[object]:
    """The words of a restore of one topic to another name."""
    to = ["--to", f"kafka://{bootstrap}", "--map", f"{topic}={target}"]
    return ["restore", "topics", topic, "--repo", destination, *to]


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

    def run(self, words: Sequence[object]) -> Sample:
        """What a command reported, and its cost in the whole tree. Raises MeasuringError when it fails."""
        before = self._tree.cpu_s()
        with self._tree.sampled() as peak:
            said = self.ask(*words)
        return Sample(Cost(said["seconds"], self._tree.cpu_s() - before, peak[0]), 0, said)

    def ask(self, *words: object) -> dict[str, Any]:
        """What a command reported, or the session itself (`warm.py` has the words)."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"code": "no"}')
        if answer.get("code"):
            log = self._log.read_text("utf-8", "replace")[-3000:]
            raise MeasuringError(f"the warm session answered with {answer['code']}:\n{log}")
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
