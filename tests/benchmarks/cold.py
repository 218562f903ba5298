"""Commands as cold processes, compared with a bare Spark session with one Python task, and with peers."""

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

BARE_SESSION = "a bare session and one Python task"
MANY, RECORDS, FEW = 2_000_000, 100_000, 10_000
FILES, EVENTS, QUEUED = 20_000, 10_000, 4_000_000
#: Each row of a peer is below the row of lakebackup that it is compared with.
PEERS = ("restic", "sha256sum")

#: A job, its seconds before start-up was made faster, and its goal in seconds.
Row = tuple[Job, str, str]


def cold(broker: Broker, folder: Path, runs: int, scale: float) -> str:
    """Return Markdown: a row for each command, with its ratio to the bare session and to the peer below."""
    commands = Cold(broker, folder, scale)
    bare_session = partial(
        peers.command(folder / "bare.log"), [sys.executable, "-m", "tests.benchmarks.plain_spark"]
    )
    command_rows: dict[str, Row] = {
        BARE_SESSION: (bare_session, "", ""),
        **commands.of_topics(),
        **commands.of_files(),
        **commands.of_changes(),
    }
    samples = rounds({name: job for name, (job, *_) in command_rows.items()}, runs)
    rows = []
    for (name, samples_of_name), next_name in zip_longest(samples.items(), list(samples)[1:]):
        session_ratio = (
            ["", ""] if name in (BARE_SESSION, *PEERS) else ratio(samples_of_name, samples[BARE_SESSION])
        )
        peer_ratio = ratio(samples_of_name, samples[next_name]) if next_name in PEERS else ["", ""]
        rows.append([name, *command_rows[name][1:], *cost(samples_of_name), *session_ratio, *peer_ratio])
    head = ["", "before", "at most", *COST, "/ bare session: time", "CPU", "/ peer below: time", "CPU"]
    return markdown(head, rows)


class Cold:
    """The commands, and the topics, files and queues that they work on."""

    def __init__(self, broker: Broker, folder: Path, scale: float) -> None:
        self._bootstrap, self._folder, self._scale = broker.bootstrap, folder, scale
        folder.mkdir(parents=True)
        self._run = ours.cold(folder / "command.log")
        self._many, self._data, self._growing = (
            DataSet(name, round(count * scale), 200)
            for name, count in (("many", MANY), ("some", RECORDS), ("grows", FEW))
        )
        for data in (self._many, self._data, self._growing):
            fill(self._bootstrap, data)
        self._repo, self._growing_repo = folder / "kept", folder / "grown"
        self._run(self._backup(self._data, self._repo))
        self._run(self._backup(self._growing, self._growing_repo))

    def of_topics(self) -> dict[str, Row]:
        """Return the rows of questions and of commands for topics."""
        repo, used_repo, new_repo, full_mode = (
            self._repo,
            self._folder / "used",
            self._folder / "new",
            ("--mode", "full"),
        )
        run, backup = self._command, self._backup
        dry_restore = ours.restore_topics(self._bootstrap, self._data.topic, repo, "dry")
        return {
            "`--help`": (run("--help"), "0.24", "0.15"),
            "`list`": (run("list", "--repo", repo), "0.95", "0.4"),
            '`sql "SELECT * FROM files"`': (run("sql", "SELECT * FROM files", "--repo", repo), "1.9", "0.6"),
            f"`backup topics`, full of {self._many}": (
                run(*backup(self._many, used_repo, *full_mode)),
                "9.8 (1,656 MB)",
                "4.0 (750 MB)",
            ),
            f"full of {self._data}": (run(*backup(self._data, used_repo, *full_mode)), "7.7", "3.5"),
            "the same, new destination": (
                run(*backup(self._data, new_repo), new=new_repo),
                "6 more",
                "0.3 more",
            ),
            f"increment of {self._growing.records:,} records": (self._increment, "7", "1.5"),
            "nothing new": (self._nothing_new, "4.8", "0.8"),
            "dry run": (run(*backup(self._data, repo, *full_mode, "--dry-run")), "4.8", "0.8"),
            f"`restore topics` of {self._data}": (self._restore, "9.6", "4.0"),
            "dry run of it": (run(*dry_restore, "--dry-run"), "4.8", "0.8"),
            "`verify`, 4 files": (run("verify", "--repo", repo), "13.5", "1.0"),
        }

    def of_files(self) -> dict[str, Row]:
        """Return the rows of commands for a snapshot, and of other tools on the same files."""
        source, target = self._folder / "source", self._folder / "target"
        count, file_bytes = round(FILES * self._scale), 100_000
        snapshots.make(source, count, snapshots.Contents(file_bytes))
        tools = snapshots.tools(self._folder)

        def step(name: str, step: str) -> Sample | str:
            shutil.rmtree(target, ignore_errors=True)
            destination = self._folder / ("files" if name == COLD else name)
            return tools[name].step(step, source, destination, target)

        for name in (COLD, "restic"):
            attempt(f"{name}, backup", partial(step, name, BACKUP))
        files = f"{count:,} files, {count * file_bytes / 1e9:.1f} GB"
        return {
            f"`restore snapshot`, {files}": (partial(step, COLD, RESTORE), "10.6", "restic's"),
            "restic": (partial(step, "restic", RESTORE), "8.3", ""),
            f"`verify`, {files}": (partial(step, COLD, VERIFY), "16.4", "6.5"),
            "sha256sum": (partial(step, "sha256sum", VERIFY), "4.4", ""),
        }

    def of_changes(self) -> dict[str, Row]:
        """Return the rows of commands for a log and for an engine's queues."""
        log, target, events = self._folder / "log", self._folder / "out", round(EVENTS * self._scale)
        changelog_restore.make(log, events, separate=False)
        point = ["restore", "point", "bench", "--repo", log, "--to", f"delta:{target}"]
        engine, store = Queues(self._bootstrap, "cold"), Store(self._folder / "store")
        engine.create()
        store.make(1_000_000)
        store.write_snapshot_json(engine)
        engine_repo, queued_bytes = self._folder / "engine", round(QUEUED * self._scale)
        self._run(queues.words(engine, store, engine_repo, "full"))
        engine.change(queued_bytes)
        differential = queues.words(engine, store, engine_repo, "differential")
        return {
            f"`restore point` of {events:,} events": (self._command(*point, new=target), "15", "4"),
            f"`backup queue`, differential of {queued_bytes / 1e6:g} MB": (
                self._command(*differential),
                "",
                "",
            ),
        }

    def _command(self, *words: object, new: Path | None = None) -> Job:
        """Return a job that runs a command. `new`: a folder that is removed before each run."""

        def job() -> Sample | str:
            if new:
                shutil.rmtree(new, ignore_errors=True)
            return self._run(words)

        return job

    def _backup(self, data: DataSet, destination: Path, *options: str) -> list[object]:
        return ours.backup_topics(self._bootstrap, data.topic, destination, *options)

    def _restore(self) -> Sample | str:
        with new_name(self._bootstrap, self._data) as target:
            return self._run(ours.restore_topics(self._bootstrap, self._data.topic, self._repo, target))

    def _nothing_new(self) -> Sample | str:
        words = self._backup(self._data, self._repo)
        self._run(words)  # backs up the offsets that the previous restore committed
        return self._run(words)

    def _increment(self) -> Sample | str:
        old_count = self._growing.records
        self._growing = replace(self._growing, records=old_count + round(FEW * self._scale))
        fill(self._bootstrap, self._growing, old_count)
        return self._run(self._backup(self._growing, self._growing_repo))
