"""Compaction and merge of a chain of backups, beside plain Python over the same files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks import ours
from tests.benchmarks.data import DataSet, delete_topic, fill
from tests.benchmarks.measure import Job, MeasuringError, Sample, Samples, of_module, rounds
from tests.benchmarks.ours import COLD, WARM, Session
from tests.benchmarks.report import made, phases, table
from tests.benchmarks.topics import size

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
        words = ["compact", "--pattern", ".*", "--all-keyed"]
        samples = self._compare(runs, words, {"fastavro and a dict": "compact"})
        kept = _said(samples, "kept_entries") | _said(samples, "count")
        if len(kept) != 1:
            raise MeasuringError(f"one keeps {min(kept)} records, the other {max(kept)}")
        return f"{self._report(samples)}\n\nKept: {kept.pop():,} records."

    def merge(self, runs: int) -> str:
        """Markdown: all of them become one full."""
        self._make(MERGED)
        stored = sum(file.stat().st_size for file in self._made.rglob("*.data"))
        verbs = {"reading and writing": "copy", "the same with sha256 of both": "hashed", "fastavro": "merge"}
        samples = self._compare(runs, ["merge", "1"], verbs)
        if wrong := _said(samples, "entries") - {self.data.records}:
            raise MeasuringError(f"{wrong.pop()} records were merged, not {self.data.records}")
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
            self.session.ask(
                *ours.backup_topics(self.broker.bootstrap, topic, self._made, "--groups", "none")
            )
        delete_topic(self.broker.bootstrap, topic)

    def _compare(self, runs: int, words: list[str], plain: Mapping[str, str]) -> Samples[str]:
        here, log = self.folder / "copy", self.folder / "command.log"

        def on_copy(job: Job) -> Job:
            def once() -> Sample | str:
                shutil.copytree(self._made, here)
                try:
                    before, sample = size(here), job()
                    return (
                        replace(sample, written=size(here) - before) if isinstance(sample, Sample) else sample
                    )
                finally:
                    shutil.rmtree(here)

            return once

        def in_python(verb: str) -> Sample:
            cost = of_module("plain", verb, "", self.data.topic, here, log=log)
            return Sample(cost, said={"count": int((here / "count").read_text("ascii"))})

        def job_of(verb: str) -> Job:
            return on_copy(lambda: in_python(verb))

        words = [*words, "--repo", str(here)]
        jobs: dict[str, Job] = {
            WARM: on_copy(lambda: self.session.run(words)),
            COLD: on_copy(lambda: ours.cold(log)(words)),
            **{name: job_of(verb) for name, verb in plain.items()},
        }
        samples = rounds(jobs, runs)
        shutil.rmtree(self.folder)
        return samples

    def _report(self, samples: Samples[str]) -> str:
        return f"{table(samples, WARM)}\n\n{phases(samples[WARM])}"


def _said(samples: Samples[str], name: str) -> set[int]:
    return {one.said[name] for runs in samples.values() for one in made(runs) if name in one.said}
