"""Seconds, CPU seconds and memory of a whole process tree (Linux: reads /proc).

`python -m tests.benchmarks.measure COMMAND...` runs one command and prints its cost as JSON on its last line.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
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
    """A measured command failed or gave a wrong result."""


@dataclass(frozen=True)
class Cost:
    """Wall seconds, user + system CPU seconds, and the peak memory (bytes) of a whole process tree.

    The memory is the sum of the proportional set sizes, so memory that processes share counts once. The last
    two are the peaks of single processes (resident bytes): of the driver, and of its largest Python worker.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int
    driver_bytes: int = 0
    worker_bytes: int = 0


@dataclass(frozen=True)
class Sample:
    """One run of one tool. `written_bytes`: bytes that it left on disk. `result`: the result that it
    reported."""

    cost: Cost
    written_bytes: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.cost.seconds:.2f} s, {self.cost.cpu_s:.2f} CPU s"


#: Runs a command line. A string as result says why there is no sample.
Run = Callable[[Sequence[object]], Sample | str]
Job = Callable[[], Sample | str]
Samples = dict[Key, list[Sample | str]]


def rounds(jobs: Mapping[Key, Job], runs: int) -> Samples[Key]:
    """Run the jobs in turn, round by round. Returns the samples of each job, without the uncounted rounds."""
    samples: Samples[Key] = {name: [] for name in jobs}
    for number in range(1 - UNCOUNTED, runs + 1):
        for name, job in jobs.items():
            sample = attempt(f"round {number}, {name}", job)
            if number > 0:
                samples[name].append(sample)
    return samples


def attempt(name: str, job: Job) -> Sample | str:
    """Return a job's sample. When it fails, prints the reason on standard error and returns FAILED."""
    try:
        sample = job()
    except MeasuringError as failure:
        progress(str(failure))
        sample = FAILED
    progress(f"{name}: {sample}")
    return sample


@dataclass
class Peaks:
    """The most memory so far (bytes), as in Cost."""

    tree_bytes: int = 0
    driver_bytes: int = 0
    worker_bytes: int = 0


class Tree:
    """A process with all its descendants; without `root`, only the descendants.

    The driver is the process, or its first child.
    """

    def __init__(self, pid: int, *, root: bool = True) -> None:
        self._process, self._root = psutil.Process(pid), root
        self._driver = self._process if root else None

    def processes(self) -> list[psutil.Process]:
        children: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            children = self._process.children(recursive=True)
        return [self._process, *children] if self._root else children

    def resident(self) -> int:
        """Return the resident bytes. Each page counts once."""
        total = 0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
        return total

    def cpu_s(self) -> float:
        """Return user + system seconds so far, also of ended processes that their parents waited for."""
        total = 0.0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def raise_peaks(self, peaks: Peaks) -> None:
        """Raise the peaks to what the processes hold now, or held before if they are still running."""
        processes = self.processes()
        if self._driver is None and processes:
            self._driver = processes[0]
        for process in processes:
            with suppress(psutil.NoSuchProcess, OSError):
                if process == self._driver:
                    peaks.driver_bytes = max(peaks.driver_bytes, _peak_resident(process.pid))
                elif "python" in process.name():
                    peaks.worker_bytes = max(peaks.worker_bytes, _peak_resident(process.pid))
        peaks.tree_bytes = max(peaks.tree_bytes, self.resident())

    @contextmanager
    def sampled(self) -> Iterator[Peaks]:
        """While the block runs, raise the yielded peaks."""
        over, peaks = threading.Event(), Peaks()
        self.raise_peaks(peaks)

        def sample() -> None:
            pause = SAMPLE_S
            while not over.wait(pause):
                started = time.thread_time()
                self.raise_peaks(peaks)
                # Counting a JVM's pages takes long. The pause leaves the cores to the measured processes.
                pause = max(SAMPLE_S, 20 * (time.thread_time() - started))

        thread = threading.Thread(target=sample, name="memory", daemon=True)
        thread.start()
        try:
            yield peaks
        finally:
            over.set()
            thread.join()


def _peak_resident(pid: int) -> int:
    """Return the peak of the resident bytes of a running process. An ended one has none."""
    match = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii", "replace"))
    return int(match.group(1)) * 1024 if match else 0


def of_command(command: Sequence[str], log: Path, *, timeout_s: float = 1800) -> Cost:
    """Return the cost of a command and of all processes that it starts, until the last one ends.

    Its output goes to `log`. Raises MeasuringError when the command fails.
    """
    runner = [sys.executable, "-m", "tests.benchmarks.measure", *command]
    with log.open("wb") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": output}
        result = subprocess.run(runner, **streams, timeout=timeout_s, check=False)
    if result.returncode:
        end = log.read_text("utf-8", "replace")[-1000:]
        raise MeasuringError(f"{command[0]} ended with {result.returncode}:\n{end}")
    return Cost(**json.loads(result.stdout))


def of_module(name: str, *arguments: object, log: Path) -> Cost:
    """Return the cost of a module of this package that runs as a program."""
    return of_command([sys.executable, "-m", f"tests.benchmarks.{name}", *map(str, arguments)], log)


def progress(text: str) -> None:
    """Print a line of progress on standard error."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main(command: Sequence[str]) -> int:
    """Run a command and print its cost as JSON. Returns its exit code.

    This process adopts orphans, so the operating system's accounting of its children is complete.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")
    with Tree(os.getpid(), root=False).sampled() as peaks:
        started = time.perf_counter()
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
        seconds = time.perf_counter() - started
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    tree_bytes = max(peaks.tree_bytes, usage.ru_maxrss * 1024)
    cpu_s = usage.ru_utime + usage.ru_stime
    cost = Cost(seconds, cpu_s, tree_bytes, peaks.driver_bytes, peaks.worker_bytes)
    print(json.dumps(asdict(cost)))
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
