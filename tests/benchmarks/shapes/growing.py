"""Measures the same commands on a shape and on one of half its size."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count as count_from
from pathlib import Path
from statistics import median
from typing import Protocol

from tests.benchmarks import ours
from tests.benchmarks.data import delete_topic
from tests.benchmarks.measure import Cost, Job, MeasuringError, Run, Sample, progress, rounds
from tests.benchmarks.report import markdown, report_lines

_NUMBERS = count_from(1)


@dataclass(frozen=True)
class Setting:
    """Where a shape is made: a broker, and a folder of its own. `run` starts cold commands."""

    bootstrap: str
    folder: Path
    run: Run

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def restored(self) -> Path:
        return self.folder / "restored"

    def fresh(self, folder: Path, words: list[object]) -> Sample | str:
        """Run a command without what an earlier run left in a folder."""
        shutil.rmtree(folder, ignore_errors=True)
        return self.run(words)

    @contextmanager
    def new_topic(self) -> Iterator[str]:
        """Yield an unused name for a topic, and delete that topic afterwards."""
        name = f"restored-{next(_NUMBERS)}"
        try:
            yield name
        finally:
            delete_topic(self.bootstrap, name)


class Shape(Protocol):
    """Something to back up, of a certain size. As a context manager, it exists inside the block."""

    def works(self) -> dict[str, Job]:
        """Return commands by name, in the order in which a round runs them. They check what they wrote."""


MakeShape = Callable[[Setting, int], AbstractContextManager[Shape]]


def grow(bootstrap: str, folder: Path, make: MakeShape, sizes: tuple[int, int], unit: str, runs: int) -> str:
    """Return Markdown: medians of each command on both sizes, and how many times the larger costs.

    Raises MeasuringError when any of the commands failed or gave a wrong result.
    """
    failures: list[str] = []
    samples: dict[int, dict[str, list[Sample | str]]] = {}
    for size in sizes:
        progress(f"making {size:,} {unit}")
        setting = Setting(bootstrap, folder / str(size), ours.cold(folder / "command.log"))
        setting.folder.mkdir(parents=True)
        with make(setting, size) as shape:
            jobs = {work: _noting(failures, job) for work, job in shape.works().items()}
            samples[size] = rounds(jobs, runs)
        shutil.rmtree(setting.folder)
    if failures:
        raise MeasuringError("\n".join(failures))
    smaller, larger = (samples[size] for size in sizes)
    head = ["", *[f"{size:,} {unit}: s (CPU s)" for size in sizes], "time", "CPU", "memory"]
    head += ["tree, MB", "driver, MB", "a worker, MB"]
    return markdown(head, [[work, *_cells(smaller[work], larger[work])] for work in larger])


def _noting(failures: list[str], job: Job) -> Job:
    """Return a job that also adds the reason of a failure to a list."""

    def run() -> Sample | str:
        try:
            return job()
        except MeasuringError as failure:
            failures.append(str(failure))
            raise

    return run


def _cells(smaller: list[Sample | str], larger: list[Sample | str]) -> list[str]:
    costs = [_medians(runs) for runs in (smaller, larger)]
    before, after = costs
    if before is None or after is None:
        raise MeasuringError(f"there are no samples: {smaller[-1:]}, {larger[-1:]}")
    megabytes = [
        f"{round(low / 1e6)} to {round(high / 1e6)}" if high else ""
        for low, high in (
            (before.peak_bytes, after.peak_bytes),
            (before.driver_bytes, after.driver_bytes),
            (before.worker_bytes, after.worker_bytes),
        )
    ]
    return [
        f"{before.seconds:.2f} ({before.cpu_s:.2f})",
        f"{after.seconds:.2f} ({after.cpu_s:.2f})",
        f"x {after.seconds / before.seconds:.2f}",
        f"x {after.cpu_s / before.cpu_s:.2f}",
        f"x {after.peak_bytes / before.peak_bytes:.2f}",
        *megabytes,
    ]


def _medians(runs: list[Sample | str]) -> Cost | None:
    costs = [run.cost for run in report_lines(runs)]
    if not costs:
        return None
    return Cost(
        median(cost.seconds for cost in costs),
        median(cost.cpu_s for cost in costs),
        round(median(cost.peak_bytes for cost in costs)),
        max(cost.driver_bytes for cost in costs),
        max(cost.worker_bytes for cost in costs),
    )
