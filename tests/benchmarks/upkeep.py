"""Compaction and merge of a chain of backups, compared with plain Python over the same files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks import ours
from tests.benchmarks.data import DataSet, delete_topic, fill
from tests.benchmarks.measure import Job, MeasuringError, Sample, Samples, of_module, rounds
from tests.benchmarks.ours import COLD, WARM, Session
from tests.benchmarks.report import phases, report_lines, table
from tests.benchmarks.topics import size

from lakebackup_jobs.demo.broker import Broker

COMPACTED, MERGED = 4, 6


@dataclass(frozen=True)
class Chain:
    """A full and incremental backups of a topic. Each job works on a copy of them."""

    broker: Broker
    data: DataSet
    session: Session
    folder: Path

    def compaction(self, runs: int) -> str:
        """Return Markdown: a compaction to the latest record of each of a million keys."""
        self._make(COMPACTED)
        words = ["compact", "--pattern", ".*", "--all-keyed"]
        samples = self._compare(runs, words, {"fastavro and a dict": "compact"})
        kept_counts = _reported(samples, "kept_entries") | _reported(samples, "count")
        if len(kept_counts) != 1:
            raise MeasuringError(f"one keeps {min(kept_counts)} records, the other {max(kept_counts)}")
        return f"{self._report(samples)}\n\nKept: {kept_counts.pop():,} records."

    def merge(self, runs: int) -> str:
        """Return Markdown: a merge of all backups into one full."""
        self._make(MERGED)
        stored_bytes = sum(file.stat().st_size for file in self._original.rglob("*.data"))
        verbs = {"reading and writing": "copy", "the same with sha256 of both": "hashed", "fastavro": "merge"}
        samples = self._compare(runs, ["merge", "1"], verbs)
        if wrong := _reported(samples, "entries") - {self.data.records}:
            raise MeasuringError(f"{wrong.pop()} records were merged, not {self.data.records}")
        return f"{self._report(samples)}\n\nMerged: {stored_bytes / 1e6:,.0f} MB of data files."

    @property
    def _original(self) -> Path:
        return self.folder / "made"

    def _make(self, count: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        topic, records = self.data.topic, self.data.records
        for number in range(count):
            step = replace(self.data, records=records * (number + 1) // count)
            fill(self.broker.bootstrap, step, records * number // count)
            self.session.ask(
                *ours.backup_topics(self.broker.bootstrap, topic, self._original, "--groups", "none")
            )
        delete_topic(self.broker.bootstrap, topic)

    def _compare(self, runs: int, words: list[str], plain: Mapping[str, str]) -> Samples[str]:
        copy, log = self.folder / "copy", self.folder / "command.log"

        def on_copy(job: Job) -> Job:
            def run_on_copy() -> Sample | str:
                shutil.copytree(self._original, copy)
                try:
                    bytes_before, sample = size(copy), job()
                    return (
                        replace(sample, written_bytes=size(copy) - bytes_before)
                        if isinstance(sample, Sample)
                        else sample
                    )
                finally:
                    shutil.rmtree(copy)

            return run_on_copy

        def in_python(verb: str) -> Sample:
            cost = of_module("plain", verb, "", self.data.topic, copy, log=log)
            return Sample(cost, result={"count": int((copy / "count").read_text("ascii"))})

        def job_of(verb: str) -> Job:
            return on_copy(lambda: in_python(verb))

        words = [*words, "--repo", str(copy)]
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


def _reported(samples: Samples[str], name: str) -> set[int]:
    return {
        sample.result[name]
        for runs in samples.values()
        for sample in report_lines(runs)
        if name in sample.result
    }
