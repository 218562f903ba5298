"""Compaction and merge of a chain of backups, beside plain Python over the same files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.data import DataSet, delete_topic, fill
from tests.benchmarks.measure import Cost, MeasuringError, of_command, of_module, progress
from tests.benchmarks.ours import COMMAND, Session
from tests.benchmarks.report import Sample, phases, table
from tests.benchmarks.topics import COLD, WARM, phases_of, size

from lakebackup_jobs.demo.broker import Broker

COMPACTED, MERGED = 4, 6


@dataclass(frozen=True)
class Chain:
    """A full and incremental backups of a topic, and what is done with copies of them in turn."""

    broker: Broker
    data: DataSet
    session: Session
    folder: Path

    def compaction(self, runs: int) -> str:
        """Markdown: the latest of each key (a million of them)."""
        self._make(COMPACTED)
        found = self._compare(
            runs, "compact", ["--pattern", ".*", "--all-keyed"], {"fastavro and a dict": "compact"}
        )
        kept = {said["kept_entries"] for said in found[1]} | {said["count"] for said in found[2]}
        if len(kept) != 1:
            raise MeasuringError(f"one keeps {min(kept)} records, the other {max(kept)}")
        return f"{self._report(found[0])}\n\nKept: {kept.pop():,} records."

    def merge(self, runs: int) -> str:
        """Markdown: all of them become one full."""
        self._make(MERGED)
        stored = sum(file.stat().st_size for file in self._made.rglob("*.data"))
        verbs = {"reading and writing": "copy", "the same with sha256 of both": "hashed", "fastavro": "merge"}
        samples, told, _ = self._compare(runs, "merge", ["1"], verbs)
        if wrong := [said["entries"] for said in told if said["entries"] != self.data.records]:
            raise MeasuringError(f"{wrong[0]} records were merged, not {self.data.records}")
        return f"{self._report(samples)}\n\nMerged: {stored / 1e6:,.0f} MB of data files."

    @property
    def _made(self) -> Path:
        return self.folder / "made"

    def _make(self, count: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        topic, records = self.data.topic, self.data.records
        for number in range(count):
            step = replace(self.data, records=records * (number + 1) // count)
            fill(self.broker.bootstrap, step, records * number // count)
            where = {"bootstrap": self.broker.bootstrap, "topic": topic, "destination": str(self._made)}
            self.session.ask("backup", **where, mode="auto")
        delete_topic(self.broker.bootstrap, topic)

    def _compare(
        self, runs: int, verb: str, words: list[str], plain: Mapping[str, str]
    ) -> tuple[dict[str, list[Sample | None]], list[dict[str, Any]], list[dict[str, int]]]:
        """Samples by tool; what the warm session and plain Python said of each run."""
        here, log = self.folder / "copy", self.folder / "command.log"
        samples: dict[str, list[Sample | None]] = {name: [] for name in (WARM, COLD, *plain)}
        told, counts = [], []
        for number in range(-1, runs):  # the first is not counted: workers start, compiled code is loaded
            for name in samples:
                shutil.copytree(self._made, here)
                before, said = size(here), {}
                cost: Cost
                if name == WARM:
                    cost, said = self.session.measured(verb, destination=str(here))
                    told.append(said)
                elif name == COLD:
                    cost = of_command([*COMMAND, verb, *words, "--from", str(here)], log)
                else:
                    cost = of_module("plain", plain[name], "", self.data.topic, here, log=log)
                    counts.append({"count": int((here / "count").read_text("ascii"))})
                if number >= 0:
                    samples[name].append(Sample(cost, size(here) - before, phases_of(said)))
                progress(f"round {number + 1}, {name}: {cost.seconds:.2f} s")
                shutil.rmtree(here)
        shutil.rmtree(self.folder)
        return samples, told, counts

    def _report(self, samples: dict[str, list[Sample | None]]) -> str:
        return f"{table(samples, WARM)}\n\n{phases(samples[WARM])}"
