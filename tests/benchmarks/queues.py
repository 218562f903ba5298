"""What a differential backup of an engine's queues costs beside a full, and beside a plain consumer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.measure import Cost, MeasuringError, of_command, progress
from tests.benchmarks.ours import COMMAND, Session
from tests.benchmarks.queue_load import Queues, Ranges, Store
from tests.benchmarks.report import markdown, spread
from tests.benchmarks.topics import size

from lakebackup_jobs.demo.broker import Broker

GRAPH = "bench"
FULL, AGAIN = "full", "full, the same files again"
PART, DIFFERENTIAL, INCREMENTAL = "differential, 0.1 %", "differential, 1 %", "incremental, 1 %"
COLD = "differential, 1 %, cold command"
COPY, RSYNC, CONSUMER = "cp -r and sync", "rsync -a and sync", "plain consumer to a file"


@dataclass(frozen=True)
class Sample:
    """One run: its cost, the bytes that had changed (keys, values, headers), the bytes it left on disk."""

    cost: Cost
    changed: int
    written: int


@dataclass
class Ratio:
    """A store and its queues, backed up over and over. A round begins with an empty destination."""

    broker: Broker
    session: Session
    folder: Path
    bytes_: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def rounds(self, runs: int, *, before: int = 1) -> str:
        """Markdown. So many rounds before are not counted: workers start, compiled code is loaded."""
        self.folder.mkdir(parents=True)
        self.store = Store(self.folder / "store")
        count = self.store.make(self.bytes_)
        for number in range(-before, runs):
            progress(f"round {number + 1}")
            self._queues = Queues(self.broker.bootstrap, f"{GRAPH}{number + before}")
            self._queues.create()
            self._round()
            self._queues.delete()
            if number < 0:
                self.samples.clear()
        self.store.delete()
        said = f"{count} files of together {self.bytes_ / 1e9:.2f} GB, {len(self._queues.places)} partitions."
        return f"{said}\n\n{self._table()}\n\n{self._headline()}"

    def _round(self) -> None:
        shutil.rmtree(self._ours, ignore_errors=True)
        self.session.ask("init", destination=str(self._ours))
        self.store.stands(self._queues)
        self._backup(FULL, "full", 0, self.bytes_)
        self._copied(COPY, 'cp -r "$0" "$1" && sync -f "$1"')
        if shutil.which("rsync"):
            self._copied(RSYNC, 'rsync -a "$0/" "$1/" && sync -f "$1"')
        self._backup(AGAIN, "full", 0, 0)
        before = self._queues.ends()
        few, part = self._queues.change(self.bytes_ // 1000)
        self._backup(PART, "differential", few, part)
        self._consumed(f"{CONSUMER}, 0.1 %", before, few, part)
        more, rest = self._queues.change(self.bytes_ // 100 - part)
        count, changed = few + more, part + rest
        self._backup(DIFFERENTIAL, "differential", count, changed)
        self._consumed(f"{CONSUMER}, 1 %", before, count, changed)
        self._backup_cold(changed)
        count, changed = self._queues.change(self.bytes_ // 100)
        self._backup(INCREMENTAL, "incremental", count, changed)

    def _backup(self, name: str, mode: str, count: int, changed: int) -> None:
        before = size(self._ours)
        cost, said = self.session.measured("backup_queue", **self._asked(mode))
        if mode != "full":
            # The command's own process reads; what Spark's workers do or give back meanwhile is not of it.
            cost = replace(cost, cpu_s=said["own_cpu_s"])
        if said["entries"] != count:
            raise MeasuringError(f"{name}: {said['entries']} messages backed up, not {count}")
        self._note(name, Sample(cost, changed, size(self._ours) - before))

    def _backup_cold(self, changed: int) -> None:
        asked = self._asked("differential")
        topics = [word for topic in asked["topics"] for word in ("--topics", topic)]
        command = [*COMMAND, "backup", "queue", GRAPH, *topics, "--mode", "differential"]
        command += ["--config", asked["config"], "--schema", asked["schema"], "--to", asked["destination"]]
        command += ["--bootstrap-server", asked["bootstrap"]]
        before = size(self._ours)
        cost = of_command(command, self.folder / "command.log")
        self._note(COLD, Sample(cost, changed, size(self._ours) - before))

    def _copied(self, name: str, script: str) -> None:
        place = self.folder / "copy"
        words = ["/bin/sh", "-c", script, str(self.store.snapshot), str(place)]
        cost = of_command(words, self.folder / "command.log")
        self._note(name, Sample(cost, self.bytes_, size(place)))
        shutil.rmtree(place)

    def _consumed(self, name: str, before: dict[tuple[str, int], int], count: int, changed: int) -> None:
        ends = self._queues.ends()
        ranges = {place: (start, ends[place]) for place, start in before.items()}
        file = self.folder / "messages"
        cost, found = consume(self.broker.bootstrap, file, ranges)
        if found != count:
            raise MeasuringError(f"{name}: {found} messages read, not {count}")
        self._note(name, Sample(cost, changed, file.stat().st_size))
        file.unlink()

    def _asked(self, mode: str) -> dict[str, Any]:
        return asked(self._queues, self.store, self._ours, mode)

    def _note(self, name: str, sample: Sample) -> None:
        told = f"{sample.cost.seconds:.2f} s, {sample.cost.cpu_s:.2f} CPU s"
        progress(f"  {name}: {told} ({sample.changed / 1e6:.1f} MB changed)")
        self.samples.setdefault(name, []).append(sample)

    @property
    def _ours(self) -> Path:
        return self.folder / "ours"

    def _table(self) -> str:
        peers = {
            FULL: COPY,
            PART: f"{CONSUMER}, 0.1 %",
            DIFFERENTIAL: f"{CONSUMER}, 1 %",
            COLD: f"{CONSUMER}, 1 %",
            INCREMENTAL: f"{CONSUMER}, 1 %",
        }
        head = ["", "changed MB", "seconds (least to most)", "CPU s", "written MB"]
        head += ["CPU s per 100 MB changed", "full : it, time", "it : its peer, time", "CPU"]
        rows = []
        for name, found in self.samples.items():
            cpu, changed = median(one.cost.cpu_s for one in found), median(one.changed for one in found)
            peer = self._against(name, peers[name]) if name in peers else ["", ""]
            rows.append(
                [
                    name,
                    f"{changed / 1e6:.1f}",
                    spread([one.cost.seconds for one in found]),
                    f"{cpu:.2f}",
                    f"{median(one.written for one in found) / 1e6:.1f}",
                    f"{cpu / changed * 1e8:.2f}" if changed else "",
                    f"{self._ratio(FULL, name):.1f}" if changed and name != FULL else "",
                    *peer,
                ]
            )
        return markdown(head, rows)

    def _against(self, name: str, peer: str) -> list[str]:
        pairs = list(zip(self.samples[name], self.samples[peer], strict=True))
        time = median(ours.cost.seconds / its.cost.seconds for ours, its in pairs)
        return [f"{time:.2f}", f"{median(ours.cost.cpu_s / its.cost.cpu_s for ours, its in pairs):.2f}"]

    def _ratio(self, name: str, other: str) -> float:
        pairs = zip(self.samples[name], self.samples[other], strict=True)
        return median(one.cost.seconds / another.cost.seconds for one, another in pairs)

    def _headline(self) -> str:
        found = ", ".join(
            f"{self._ratio(FULL, name):.1f} ({name})" for name in (PART, DIFFERENTIAL, INCREMENTAL)
        )
        return f"Full to it, warm, seconds, medians of the rounds' ratios: {found}."


def asked(queues: Queues, store: Store, destination: Path, mode: str) -> dict[str, Any]:
    """What a warm session is asked for."""
    return {
        "source": GRAPH,
        "bootstrap": queues.bootstrap,
        "topics": list(queues.topics),
        "destination": str(destination),
        "mode": mode,
        "snapshot": str(store.snapshot),
        "config": str(store.config),
        "schema": str(store.schema),
    }


def consume(bootstrap: str, file: Path, ranges: Ranges) -> tuple[Cost, int]:
    """What the plain consumer took for the messages of some ranges, and how many they were."""
    told = [[*place, *span] for place, span in ranges.items()]
    command = [sys.executable, "-m", "tests.benchmarks.plain_queues", bootstrap, str(file), json.dumps(told)]
    found = json.loads(subprocess.check_output(command))
    return Cost(found["seconds"], found["cpu_s"], found["peak_bytes"]), found["messages"]
