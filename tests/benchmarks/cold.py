"""Commands as whole processes, cold, beside a bare Spark session with one Python task, and beside peers."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from tests.benchmarks import changelog_restore, ours, peers, queues, snapshots
from tests.benchmarks.data import DataSet, fill, new_name
from tests.benchmarks.measure import Job, Sample, attempt, rounds
from tests.benchmarks.ours import COLD
from tests.benchmarks.queue_load import Queues, Store
from tests.benchmarks.report import COST, cost, markdown, ratio
from tests.benchmarks.snapshots import BACKUP, RESTORE, VERIFY

from lakebackup_jobs.demo.broker import Broker

BARE = "a bare session and one Python task"
MANY, RECORDS, FEW = 2_000_000, 100_000, 10_000
FILES, EVENTS, QUEUED = 20_000, 10_000, 4_000_000
#: Each is the row below that of ours.
PEERS = ("restic", "sha256sum")

#: A job, the seconds it took before start-up was worked on, and those it may take.
Row = tuple[Job, str, str]


def cold(broker: Broker, folder: Path, runs: int, scale: float) -> str:
    """Markdown: a row a command, divided by the bare session, and by the peer below it."""
    made = Cold(broker, folder, scale)
    bare = partial(peers.command(folder / "bare.log"), [sys.executable, "-m", "tests.benchmarks.plain_spark"])
    given: dict[str, Row] = {BARE: (bare, "", ""), **made.of_topics(), **made.of_files(), **made.of_changes()}
    samples = rounds({name: job for name, (job, *_) in given.items()}, runs)
    rows = []
    for (name, found), below in zip_longest(samples.items(), list(samples)[1:]):
        by_bare = ["", ""] if name in (BARE, *PEERS) else ratio(found, samples[BARE])
        by_peer = ratio(found, samples[below]) if below in PEERS else ["", ""]
        rows.append([name, *given[name][1:], *cost(found), *by_bare, *by_peer])
    head = ["", "before", "at most", *COST, "/ bare session: time", "CPU", "/ peer below: time", "CPU"]
    return markdown(head, rows)


class Cold:
    """What the commands work on, and the commands."""

    def __init__(self, broker: Broker, folder: Path, scale: float) -> None:
        self._bootstrap, self._folder, self._scale = broker.bootstrap, folder, scale
        folder.mkdir(parents=True)
        self._run = ours.cold(folder / "command.log")
        self._many, self._data, self._grows = (
            DataSet(name, round(count * scale), 200)
            for name, count in (("many", MANY), ("some", RECORDS), ("grows", FEW))
        )
        for data in (self._many, self._data, self._grows):
            fill(self._bootstrap, data)
        self._kept, self._grown = folder / "kept", folder / "grown"
        self._run(self._backup(self._data, self._kept))
        self._run(self._backup(self._grows, self._grown))

    def of_topics(self) -> dict[str, Row]:
        """Questions, and what is done with topics."""
        kept, used, new, full = self._kept, self._folder / "used", self._folder / "new", ("--mode", "full")
        run, backup = self._command, self._backup
        dry_restore = ours.restore_topics(self._bootstrap, self._data.topic, kept, "dry")
        return {
            "`--help`": (run("--help"), "0.24", "0.15"),
            "`list`": (run("list", "--repo", kept), "0.95", "0.4"),
            '`sql "SELECT * FROM files"`': (run("sql", "SELECT * FROM files", "--repo", kept), "1.9", "0.6"),
            f"`backup topics`, full of {self._many}": (
                run(*backup(self._many, used, *full)),
                "9.8 (1,656 MB)",
                "4.0 (750 MB)",
            ),
            f"full of {self._data}": (run(*backup(self._data, used, *full)), "7.7", "3.5"),
            "the same, new destination": (run(*backup(self._data, new), new=new), "6 more", "0.3 more"),
            f"increment of {self._grows.records:,} records": (self._increment, "7", "1.5"),
            "nothing new": (self._nothing_new, "4.8", "0.8"),
            "dry run": (run(*backup(self._data, kept, *full, "--dry-run")), "4.8", "0.8"),
            f"`restore topics` of {self._data}": (self._restore, "9.6", "4.0"),
            "dry run of it": (run(*dry_restore, "--dry-run"), "4.8", "0.8"),
            "`verify`, 4 files": (run("verify", "--repo", kept), "13.5", "1.0"),
        }

    def of_files(self) -> dict[str, Row]:
        """What is done with a snapshot, and other tools with the same files."""
        source, target = self._folder / "source", self._folder / "target"
        count, each = round(FILES * self._scale), 100_000
        snapshots.make(source, count, each)
        tools = snapshots.tools(self._folder)

        def step(name: str, step: str) -> Sample | str:
            shutil.rmtree(target, ignore_errors=True)
            place = self._folder / ("files" if name == COLD else name)
            return tools[name].step(step, source, place, target)

        for name in (COLD, "restic"):
            attempt(f"{name}, backup", partial(step, name, BACKUP))
        files = f"{count:,} files, {count * each / 1e9:.1f} GB"
        return {
            f"`restore snapshot`, {files}": (partial(step, COLD, RESTORE), "10.6", "restic's"),
            "restic": (partial(step, "restic", RESTORE), "8.3", ""),
            f"`verify`, {files}": (partial(step, COLD, VERIFY), "16.4", "6.5"),
            "sha256sum": (partial(step, "sha256sum", VERIFY), "4.4", ""),
        }

    def of_changes(self) -> dict[str, Row]:
        """What is done with a log, and with an engine's queues."""
        log, out, events = self._folder / "log", self._folder / "out", round(EVENTS * self._scale)
        changelog_restore.make(log, events, apart=False)
        point = ["restore", "point", "bench", "--repo", log, "--to", f"delta:{out}"]
        engine, store = Queues(self._bootstrap, "cold"), Store(self._folder / "store")
        engine.create()
        store.make(1_000_000)
        store.stands(engine)
        kept, queued = self._folder / "engine", round(QUEUED * self._scale)
        self._run(queues.words(engine, store, kept, "full"))
        engine.change(queued)
        differential = queues.words(engine, store, kept, "differential")
        return {
            f"`restore point` of {events:,} events": (self._command(*point, new=out), "15", "4"),
            f"`backup queue`, differential of {queued / 1e6:g} MB": (self._command(*differential), "", ""),
        }

    def _command(self, *words: object, new: Path | None = None) -> Job:
        """Runs a command; `new`: a folder that is removed before."""

        def job() -> Sample | str:
            if new:
                shutil.rmtree(new, ignore_errors=True)
            return self._run(words)

        return job

    def _backup(self, data: DataSet, destination: Path, *more: str) -> list[object]:
        return ours.backup_topics(self._bootstrap, data.topic, destination, *more)

    def _restore(self) -> Sample | str:
        with new_name(self._bootstrap, self._data) as target:
            return self._run(ours.restore_topics(self._bootstrap, self._data.topic, self._kept, target))

    def _nothing_new(self) -> Sample | str:
        words = self._backup(self._data, self._kept)
        self._run(words)  # the offsets that the restore before has committed
        return self._run(words)

    def _increment(self) -> Sample | str:
        held = self._grows.records
        self._grows = replace(self._grows, records=held + round(FEW * self._scale))
        fill(self._bootstrap, self._grows, held)
        return self._run(self._backup(self._grows, self._grown))
