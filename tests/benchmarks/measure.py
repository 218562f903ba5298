"""Seconds, CPU seconds and memory of a whole process tree (Linux: reads /proc).

`python -m tests.benchmarks.measure COMMAND...` runs one command and prints its cost as JSON on its last line.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

SAMPLE_S = 0.05
#: Rounds before those that count: workers start, compiled code is loaded, caches fill.
UNCOUNTED = 1
FAILED, NOT_RUN = "failed", "not run"
_PR_SET_CHILD_SUBREAPER = 36

Key = TypeVar("Key", bound=Hashable)


class MeasuringError(RuntimeError):
    """A measured command did not do what it was asked."""


@dataclass(frozen=True)
class Cost:
    """Wall seconds, user + system seconds, and the most memory (bytes) that a process tree holds at once.

    Memory that processes share is counted once: the sum of their proportional set sizes.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Sample:
    """One run of one tool. `written`: what it left on disk, in bytes; `said`: the result that it reported."""

    cost: Cost
    written: int = 0
    said: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.cost.seconds:.2f} s, {self.cost.cpu_s:.2f} CPU s"


#: Runs a command line; a string says why there is no sample.
Run = Callable[[Sequence[object]], Sample | str]
Job = Callable[[], Sample | str]
Samples = dict[Key, list[Sample | str]]


def rounds(jobs: Mapping[Key, Job], runs: int) -> Samples[Key]:
    """The samples of jobs that run in turn, round by round."""
    samples: Samples[Key] = {name: [] for name in jobs}
    for number in range(1 - UNCOUNTED, runs + 1):
        for name, job in jobs.items():
            found = attempt(f"round {number}, {name}", job)
            if number > 0:
                samples[name].append(found)
    return samples


def attempt(name: str, job: Job) -> Sample | str:
    """A job's sample; that it failed, and why, goes into its row and to standard error alone."""
    try:
        found = job()
    except MeasuringError as failure:
        progress(str(failure))
        found = FAILED
    progress(f"{name}: {found}")
    return found


class Tree:
    """A process and all below it, this one excepted."""

    def __init__(self, pid: int, *, root: bool = True) -> None:
        self._process, self._root = psutil.Process(pid), root

    def processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            found = self._process.children(recursive=True)
        return [self._process, *found] if self._root else found

    def resident(self) -> int:
        """Bytes resident now, each page once."""
        total = 0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
        return total

    def cpu_s(self) -> float:
        """User + system seconds so far, those of processes that ended and were waited for included."""
        total = 0.0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    @contextmanager
    def sampled(self) -> Iterator[list[int]]:
        """While the block runs, keeps the largest resident() in the list's only element."""
        over, peak = threading.Event(), [self.resident()]

        def sample() -> None:
            pause = SAMPLE_S
            while not over.wait(pause):
                started = time.thread_time()
                peak[0] = max(peak[0], self.resident())
                # To count a JVM's pages takes long: it must not take the cores from what is measured.
                pause = max(SAMPLE_S, 20 * (time.thread_time() - started))

        thread = threading.Thread(target=sample, name="memory", daemon=True)
        thread.start()
        try:
            yield peak
        finally:
            over.set()
            thread.join()


def of_command(command: Sequence[str], log: Path, *, timeout_s: float = 1800) -> Cost:
    """Cost of a command with everything it starts, whoever ends last. Its output goes to `log`.

    Raises MeasuringError when it fails.
    """
    runner = [sys.executable, "-m", "tests.benchmarks.measure", *command]
    with log.open("wb") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": output}
        done = subprocess.run(runner, **streams, timeout=timeout_s, check=False)
    if done.returncode:
        end = log.read_text("utf-8", "replace")[-1000:]
        raise MeasuringError(f"{command[0]} ended with {done.returncode}:\n{end}")
    return Cost(**json.loads(done.stdout))


def of_module(name: str, *arguments: object, log: Path) -> Cost:
    """Cost of one of these benchmarks' own programs."""
    return of_command([sys.executable, "-m", f"tests.benchmarks.{name}", *map(str, arguments)], log)


def progress(text: str) -> None:
    """What the run is at, on standard error."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main(command: Sequence[str]) -> int:
    """Orphans come to this process, so the operating system's own accounting of children is complete."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")
    with Tree(os.getpid(), root=False).sampled() as peak:
        started = time.perf_counter()
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
        seconds = time.perf_counter() - started
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = Cost(seconds, used.ru_utime + used.ru_stime, max(peak[0], used.ru_maxrss * 1024))
    print(json.dumps(asdict(cost)))
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
