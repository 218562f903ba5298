"""What a differential backup of an engine's queues costs beside a full, and beside a plain consumer."""

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
from tests.benchmarks.report import COST, cost, made, markdown, ratio
from tests.benchmarks.topics import size

from lakebackup_jobs.demo.broker import Broker

GRAPH = "bench"
FULL, AGAIN = "full", "full, the same files again"
PART, DIFFERENTIAL, INCREMENTAL = "differential, 0.1 %", "differential, 1 %", "incremental, 1 %"
COLD = "differential, 1 %, cold command"
COPY, RSYNC, CONSUMER = "cp -r and sync", "rsync -a and sync", "plain consumer to a file"


@dataclass
class Ratio:
    """A store and its queues, backed up over and over. A round begins with an empty destination."""

    broker: Broker
    session: Session
    folder: Path
    bytes_: int
    samples: dict[str, list[Sample | str]] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def rounds(self, runs: int) -> str:
        """Markdown."""
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
        said = f"{count} files of together {self.bytes_ / 1e9:.2f} GB, {len(self._queues.places)} partitions."
        return f"{said}\n\n{self._table()}\n\n{self._headline()}"

    def _round(self) -> None:
        shutil.rmtree(self._ours, ignore_errors=True)
        self.session.ask("catalog", "init", "--repo", self._ours)
        self.store.stands(self._queues)
        self._backup(FULL, "full", 0, self.bytes_)
        self._copied(COPY, "cp", "-r", self.store.snapshot)
        self._copied(RSYNC, "rsync", "-a", f"{self.store.snapshot}/")
        self._backup(AGAIN, "full", 0, 0)
        before = self._queues.ends()
        few, part = self._queues.change(self.bytes_ // 1000)
        self._backup(PART, "differential", few, part)
        self._consumed(f"{CONSUMER}, 0.1 %", before, few, part)
        more, rest = self._queues.change(self.bytes_ // 100 - part)
        count, changed = few + more, part + rest
        self._backup(DIFFERENTIAL, "differential", count, changed)
        self._consumed(f"{CONSUMER}, 1 %", before, count, changed)
        self._backup(COLD, "differential", count, changed, ours.cold(self._log))
        count, changed = self._queues.change(self.bytes_ // 100)
        self._backup(INCREMENTAL, "incremental", count, changed)

    def _backup(self, name: str, mode: str, count: int, changed: int, run: Run | None = None) -> None:
        before = size(self._ours)
        sample = (run or self.session.run)(words(self._queues, self.store, self._ours, mode))
        assert isinstance(sample, Sample)
        if sample.said and mode != "full":
            # The command's own process reads; what Spark's workers do or give back meanwhile is not of it.
            sample = replace(sample, cost=replace(sample.cost, cpu_s=sample.said["own_cpu_s"]))
        if sample.said.get("entries", count) != count:
            raise MeasuringError(f"{name}: {sample.said['entries']} messages backed up, not {count}")
        self._note(name, replace(sample, written=size(self._ours) - before), changed)

    def _copied(self, name: str, tool: str, flag: str, source: object) -> None:
        place = self.folder / "copy"
        script = '"$@" && sync -f "$0"'
        found = peers.program(tool)
        run = peers.command(self._log)
        sample = run(["sh", "-c", script, place, found, flag, source, place]) if found else measure.NOT_RUN
        if isinstance(sample, Sample):
            sample = replace(sample, written=size(place))
            shutil.rmtree(place)
        self._note(name, sample, self.bytes_)

    def _consumed(self, name: str, before: dict[tuple[str, int], int], count: int, changed: int) -> None:
        ends = self._queues.ends()
        ranges = {place: (start, ends[place]) for place, start in before.items()}
        file = self.folder / "messages"
        took, found = consume(self.broker.bootstrap, file, ranges)
        if found != count:
            raise MeasuringError(f"{name}: {found} messages read, not {count}")
        self._note(name, Sample(took, file.stat().st_size), changed)
        file.unlink()

    def _note(self, name: str, sample: Sample | str, changed: int) -> None:
        progress(f"  {name}: {sample} ({changed / 1e6:.1f} MB changed)")
        self.samples.setdefault(name, []).append(sample)
        self.changed[name] = changed

    @property
    def _ours(self) -> Path:
        return self.folder / "ours"

    @property
    def _log(self) -> Path:
        return self.folder / "command.log"

    def _table(self) -> str:
        against = {
            FULL: COPY,
            PART: f"{CONSUMER}, 0.1 %",
            DIFFERENTIAL: f"{CONSUMER}, 1 %",
            COLD: f"{CONSUMER}, 1 %",
            INCREMENTAL: f"{CONSUMER}, 1 %",
        }
        head = ["", "changed MB", *COST, "written MB", "CPU s per 100 MB changed", "full : it, time"]
        rows = []
        for name, runs in self.samples.items():
            samples, changed = made(runs), self.changed[name]
            cpu = median(one.cost.cpu_s for one in samples) if samples else 0
            rows.append(
                [
                    name,
                    f"{changed / 1e6:.1f}",
                    *cost(runs),
                    f"{median(one.written for one in samples) / 1e6:.1f}" if samples else "",
                    f"{cpu / changed * 1e8:.2f}" if changed and cpu else "",
                    ratio(self.samples[FULL], runs)[0] if changed and name != FULL else "",
                    *(ratio(runs, self.samples[against[name]]) if name in against else ["", ""]),
                ]
            )
        return markdown([*head, "it : its peer, time", "CPU"], rows)

    def _headline(self) -> str:
        full = self.samples[FULL]
        found = ", ".join(
            f"{ratio(full, self.samples[name])[0]} ({name})" for name in (PART, DIFFERENTIAL, INCREMENTAL)
        )
        return f"Full to it, warm, seconds, medians of the rounds' ratios: {found}."


def words(queues: Queues, store: Store, destination: Path, mode: str) -> list[object]:
    """The words of a backup of an engine."""
    topics = [word for topic in queues.topics for word in ("--pattern", topic)]
    snapshot = ["--snapshot-folder", store.snapshot] if mode == "full" else []
    files = ["--engine-config", store.config, "--engine-schema", store.schema, "--repo", destination]
    where = ["--bootstrap-server", queues.bootstrap]
    return ["backup", "queue", GRAPH, "--mode", mode, *topics, *snapshot, *files, *where]


def consume(bootstrap: str, file: Path, ranges: Ranges) -> tuple[Cost, int]:
    """What the plain consumer took for the messages of some ranges, and how many they were."""
    told = [[*place, *span] for place, span in ranges.items()]
    command = [sys.executable, "-m", "tests.benchmarks.plain_queues", bootstrap, str(file), json.dumps(told)]
    found = json.loads(subprocess.check_output(command))
    return Cost(found["seconds"], found["cpu_s"], found["peak_bytes"]), found["messages"]
