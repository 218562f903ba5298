"""The cost of a differential backup of an engine's queues, compared with a full and with a plain consumer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from tests.benchmarks import measure, ours, peers
from tests.benchmarks.measure import Cost, MeasuringError, Run, Sample, progress
from tests.benchmarks.ours import Session
from tests.benchmarks.queue_load import Queues, Ranges, Store
from tests.benchmarks.report import COST, cost, markdown, ratio, report_lines
from tests.benchmarks.topics import size

from lakebackup_jobs.demo.broker import Broker

GRAPH = "bench"
FULL, FULL_UNCHANGED = "full", "full, the same files again"
PART, DIFFERENTIAL, INCREMENTAL = "differential, 0.1 %", "differential, 1 %", "incremental, 1 %"
COLD = "differential, 1 %, cold command"
COPY, RSYNC, CONSUMER = "cp -r and sync", "rsync -a and sync", "plain consumer to a file"


@dataclass
class Ratio:
    """Repeated backups of a store and its queues. Each round begins with an empty repository."""

    broker: Broker
    session: Session
    folder: Path
    bytes_: int
    samples: dict[str, list[Sample | str]] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def rounds(self, runs: int) -> str:
        """Run the rounds. Returns Markdown."""
        self.folder.mkdir(parents=True)
        self.store = Store(self.folder / "store")
        count = self.store.make(self.bytes_)
        for number in range(1 - measure.UNCOUNTED, runs + 1):
            progress(f"round {number}")
            if number <= 1:
                self.samples.clear()
            self._queues = Queues(self.broker.bootstrap, f"{GRAPH}{number}")
            self._queues.create()
            self._round()
            self._queues.delete()
        self.store.delete()
        partitions = len(self._queues.partitions)
        heading = f"{count} files of together {self.bytes_ / 1e9:.2f} GB, {partitions} partitions."
        return f"{heading}\n\n{self._table()}\n\n{self._headline()}"

    def _round(self) -> None:
        shutil.rmtree(self._repo, ignore_errors=True)
        self.session.ask("catalog", "init", "--repo", self._repo)
        self.store.write_snapshot_json(self._queues)
        self._backup(FULL, "full", 0, self.bytes_)
        self._copy(COPY, "cp", "-r", self.store.snapshot)
        self._copy(RSYNC, "rsync", "-a", f"{self.store.snapshot}/")
        self._backup(FULL_UNCHANGED, "full", 0, 0)
        starts = self._queues.ends()
        small_count, small_bytes = self._queues.change(self.bytes_ // 1000)
        self._backup(PART, "differential", small_count, small_bytes)
        self._consume(f"{CONSUMER}, 0.1 %", starts, small_count, small_bytes)
        added_count, added_bytes = self._queues.change(self.bytes_ // 100 - small_bytes)
        count, changed = small_count + added_count, small_bytes + added_bytes
        self._backup(DIFFERENTIAL, "differential", count, changed)
        self._consume(f"{CONSUMER}, 1 %", starts, count, changed)
        self._backup(COLD, "differential", count, changed, ours.cold(self._log))
        count, changed = self._queues.change(self.bytes_ // 100)
        self._backup(INCREMENTAL, "incremental", count, changed)

    def _backup(self, name: str, mode: str, count: int, changed: int, run: Run | None = None) -> None:
        bytes_before = size(self._repo)
        sample = (run or self.session.run)(words(self._queues, self.store, self._repo, mode))
        assert isinstance(sample, Sample)
        if sample.result and mode != "full":
            # The command's own process reads. The CPU of Spark's idle workers does not belong to it.
            sample = replace(sample, cost=replace(sample.cost, cpu_s=sample.result["own_cpu_s"]))
        if sample.result.get("entries", count) != count:
            raise MeasuringError(f"{name}: {sample.result['entries']} messages backed up, not {count}")
        self._add_sample(name, replace(sample, written_bytes=size(self._repo) - bytes_before), changed)

    def _copy(self, name: str, tool: str, flag: str, source: object) -> None:
        copy_folder = self.folder / "copy"
        script = '"$@" && sync -f "$0"'
        program = peers.program(tool)
        run = peers.command(self._log)
        sample = (
            run(["sh", "-c", script, copy_folder, program, flag, source, copy_folder])
            if program
            else measure.NOT_RUN
        )
        if isinstance(sample, Sample):
            sample = replace(sample, written_bytes=size(copy_folder))
            shutil.rmtree(copy_folder)
        self._add_sample(name, sample, self.bytes_)

    def _consume(self, name: str, starts: dict[tuple[str, int], int], count: int, changed: int) -> None:
        ends = self._queues.ends()
        ranges = {partition: (start, ends[partition]) for partition, start in starts.items()}
        file = self.folder / "messages"
        consumer_cost, message_count = consume(self.broker.bootstrap, file, ranges)
        if message_count != count:
            raise MeasuringError(f"{name}: {message_count} messages read, not {count}")
        self._add_sample(name, Sample(consumer_cost, file.stat().st_size), changed)
        file.unlink()

    def _add_sample(self, name: str, sample: Sample | str, changed: int) -> None:
        progress(f"  {name}: {sample} ({changed / 1e6:.1f} MB changed)")
        self.samples.setdefault(name, []).append(sample)
        self.changed[name] = changed

    @property
    def _repo(self) -> Path:
        return self.folder / "ours"

    @property
    def _log(self) -> Path:
        return self.folder / "command.log"

    def _table(self) -> str:
        peers_by_name = {
            FULL: COPY,
            PART: f"{CONSUMER}, 0.1 %",
            DIFFERENTIAL: f"{CONSUMER}, 1 %",
            COLD: f"{CONSUMER}, 1 %",
            INCREMENTAL: f"{CONSUMER}, 1 %",
        }
        head = ["", "changed MB", *COST, "written MB", "CPU s per 100 MB changed", "full : it, time"]
        rows = []
        for name, runs in self.samples.items():
            samples, changed = report_lines(runs), self.changed[name]
            cpu = median(sample.cost.cpu_s for sample in samples) if samples else 0
            rows.append(
                [
                    name,
                    f"{changed / 1e6:.1f}",
                    *cost(runs),
                    f"{median(sample.written_bytes for sample in samples) / 1e6:.1f}" if samples else "",
                    f"{cpu / changed * 1e8:.2f}" if changed and cpu else "",
                    ratio(self.samples[FULL], runs)[0] if changed and name != FULL else "",
                    *(ratio(runs, self.samples[peers_by_name[name]]) if name in peers_by_name else ["", ""]),
                ]
            )
        return markdown([*head, "it : its peer, time", "CPU"], rows)

    def _headline(self) -> str:
        full = self.samples[FULL]
        ratios = ", ".join(
            f"{ratio(full, self.samples[name])[0]} ({name})" for name in (PART, DIFFERENTIAL, INCREMENTAL)
        )
        return f"Full to it, warm, seconds, medians of the rounds' ratios: {ratios}."


def words(queues: Queues, store: Store, destination: Path, mode: str) -> list[object]:
    """Return the command line of a backup of an engine."""
    topics = [word for topic in queues.topics for word in ("--pattern", topic)]
    snapshot = ["--snapshot-folder", store.snapshot] if mode == "full" else []
    files = ["--engine-config", store.config, "--engine-schema", store.schema, "--repo", destination]
    connection = ["--bootstrap-server", queues.bootstrap]
    return ["backup", "queue", GRAPH, "--mode", mode, *topics, *snapshot, *files, *connection]


def consume(bootstrap: str, file: Path, ranges: Ranges) -> tuple[Cost, int]:
    """Run the plain consumer on some ranges. Returns its cost and the number of messages."""
    spans = [[*partition, *span] for partition, span in ranges.items()]
    command = [sys.executable, "-m", "tests.benchmarks.plain_queues", bootstrap, str(file), json.dumps(spans)]
    report = json.loads(subprocess.check_output(command))
    return Cost(report["seconds"], report["cpu_s"], report["peak_bytes"]), report["messages"]
