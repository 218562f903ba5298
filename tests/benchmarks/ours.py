"""Runs lakebackup: cold as a process that starts and ends its JVM, or warm in a running session."""

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
    """Return a function that runs each command in a new process."""
    return lambda words: Sample(of_command([*COMMAND, *map(str, words)], log))


def backup_topics(bootstrap: str, topic: str, destination: Path, *options: str) -> list[object]:
    """Return the command line of a backup of one topic."""
    return ["backup", "topics", topic, "--bootstrap-server", bootstrap, "--repo", destination, *options]


def restore_topics(bootstrap: str, topic: str, destination: Path, target: str) -> list[object]:
    """Return the command line of a restore of one topic to another name."""
    to = ["--to", f"kafka://{bootstrap}", "--map", f"{topic}={target}"]
    return ["restore", "topics", topic, "--repo", destination, *to]


class Session:
    """A process with a Spark session. The JVM and the Python workers are its children."""

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
        """Run a command. Returns its report and its cost in the process tree. Raises MeasuringError."""
        cpu_before = self._tree.cpu_s()
        with self._tree.sampled() as peaks:
            report = self.ask(*words)
        cpu_s = self._tree.cpu_s() - cpu_before
        cost = Cost(report["seconds"], cpu_s, peaks.tree_bytes, peaks.driver_bytes, peaks.worker_bytes)
        return Sample(cost, 0, report)

    def ask(self, *words: object) -> dict[str, Any]:
        """Return the report of a command, or of a request to the session itself (see warm.py)."""
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
