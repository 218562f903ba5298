"""The cost of n units of work, cold and warm: what one more unit adds, and what zero units would cost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import linear_regression, median

from tests.benchmarks import chains_data, ours, snapshots
from tests.benchmarks.data import DataSet, fill, new_name
from tests.benchmarks.measure import Cost, MeasuringError, Run, Sample, progress, rounds
from tests.benchmarks.ours import Session
from tests.benchmarks.report import markdown, report_lines
from tests.benchmarks.snapshots import BACKUP, COMMANDS, RESTORE, VERIFY, Tool
from tests.support.made_backups import MadeBackups, Record

from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.demo.broker import Broker

UNITS = (1, 10, 100)
RECORDS, FILES, BACKUPS = 10_000, 100, 100
PARTITIONS = 8  # of the topic whose backups a prune deletes
WINDOW = "14"

Work = Callable[[int, Run], Sample | str]


def cost(broker: Broker, session: Session, folder: Path, runs: int, scale: float) -> str:
    """Return Markdown: the medians, and the regression line through all runs of a command."""
    folder.mkdir(parents=True)
    works = Works(broker.bootstrap, folder, scale).all()
    kinds = {"cold": ours.cold(folder / "command.log"), "warm": session.run}
    jobs = {
        (*work, kind, count): partial(act, count, run)
        for work, act in works.items()
        for count in UNITS
        for kind, run in kinds.items()
    }
    samples = rounds(jobs, runs)
    rows = []
    for work, kind in ((work, kind) for work in works for kind in kinds):
        costs_by_count = {
            count: [sample.cost for sample in report_lines(samples[*work, kind, count])] for count in UNITS
        }
        if all(costs_by_count.values()):
            rows.append([*work, kind, *_figures(costs_by_count)])
        else:
            rows.append([*work, kind, *[str(samples[*work, kind, UNITS[-1]][-1])] * (len(UNITS) + 2)])
    counts = [f"{count}: s (CPU s)" for count in UNITS]
    return markdown(["", "one unit", "", *counts, "one more: ms (CPU ms)", "none: s (CPU s)"], rows)


def _figures(costs_by_count: dict[int, list[Cost]]) -> list[str]:
    counts = [count for count, costs in costs_by_count.items() for _ in costs]
    costs = [cost for costs in costs_by_count.values() for cost in costs]
    seconds, cpu = ([cost.seconds for cost in costs], [cost.cpu_s for cost in costs])
    (slope, intercept), (cpu_slope, cpu_intercept) = (
        linear_regression(counts, values) for values in (seconds, cpu)
    )
    medians = [
        f"{median(run.seconds for run in costs):.2f} ({median(run.cpu_s for run in costs):.2f})"
        for costs in costs_by_count.values()
    ]
    return [
        *medians,
        f"{slope * 1000:.1f} ({cpu_slope * 1000:.1f})",
        f"{intercept:.2f} ({cpu_intercept:.2f})",
    ]


class Works:
    """The commands and the data that they work on, which is made once for each number of units."""

    def __init__(self, bootstrap: str, folder: Path, scale: float) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        records, self._files, self._backups = (
            max(1, round(unit * scale)) for unit in (RECORDS, FILES, BACKUPS)
        )
        self._data = {count: DataSet(f"cost-{count}", records * count, 200) for count in UNITS}
        for count, data in self._data.items():
            progress(f"making {count} units")
            fill(bootstrap, data)
            snapshots.make(folder / f"source-{count}", self._files * count, snapshots.Contents(100_000))
            self._make_deletable(count)
            chains_data.make(self._catalog(count), self._backups * count)

    def all(self) -> dict[tuple[str, str], Work]:
        """Return all commands by name and unit."""
        records, files = f"{self._data[UNITS[0]].records:,} records", f"{self._files} files of 100 kB"
        in_catalog = f"{self._backups} backups of {chains_data.TOPICS * chains_data.PARTITIONS} files"
        return {
            ("`backup topics`", records): self._backup,
            ("`restore topics`", records): self._restore,
            ("`backup snapshot`", files): partial(self._step, BACKUP),
            ("`verify`", files): partial(self._step, VERIFY),
            ("`restore snapshot`", files): partial(self._step, RESTORE),
            ("`prune --delete`", f"a backup of {PARTITIONS} files"): self._prune,
            ("plan of a restore", in_catalog): partial(
                self._plan, ["restore", "topics", "t000", "--to", "dir:/nowhere", "--dry-run"]
            ),
            ("plan of a prune", in_catalog): partial(self._plan, ["prune", WINDOW]),
        }

    def _catalog(self, count: int) -> Path:
        return self._folder / f"catalog-{count}"

    def _make_deletable(self, count: int) -> None:
        """Make `count` fulls of 1970 that a prune deletes, one that the window begins in, and one of now."""
        repo = self._folder / f"old-{count}"
        CatalogWriter(None, str(repo)).migrate()
        backups = MadeBackups(repo)
        for number in range(count + 2):
            end_ts = time.time_ns() // 1_000_000 if number > count else None
            rows = [[Record(partition, number, number)] for partition in range(PARTITIONS)]
            backups.backup(rows, full=True, end_ts=end_ts)
        backups.flush()

    def _backup(self, count: int, run: Run) -> Sample | str:
        repo = self._folder / f"topics-{count}"
        return run(ours.backup_topics(self._bootstrap, self._data[count].topic, repo, "--mode", "full"))

    def _restore(self, count: int, run: Run) -> Sample | str:
        data, repo = self._data[count], self._folder / f"topics-{count}"
        with new_name(self._bootstrap, data) as target:
            return run(ours.restore_topics(self._bootstrap, data.topic, repo, target))

    def _step(self, step: str, count: int, run: Run) -> Sample | str:
        source, repo, target = (self._folder / f"{name}-{count}" for name in ("source", "files", "target"))
        shutil.rmtree(repo if step == BACKUP else target, ignore_errors=True)
        return Tool(run, COMMANDS).step(step, source, repo, target)

    def _prune(self, count: int, run: Run) -> Sample | str:
        repo = self._folder / "pruned"
        shutil.rmtree(repo, ignore_errors=True)
        shutil.copytree(self._folder / f"old-{count}", repo)
        sample = run(["prune", WINDOW, "--delete", "--source", "prod", "--repo", repo])
        file_count = len(list(repo.rglob("*.data")))
        if file_count != 2 * PARTITIONS:
            raise MeasuringError(f"a prune left {file_count} files, not {2 * PARTITIONS}")
        return sample

    def _plan(self, words: Sequence[str], count: int, run: Run) -> Sample | str:
        options = ["--source", chains_data.SOURCE, "--repo", self._catalog(count)]
        # With a session, Spark would read the larger catalogs, and the runs would lie on two lines, not one.
        return run([*words, *options, "--engine", "duckdb"])
