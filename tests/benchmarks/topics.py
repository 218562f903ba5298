"""Backup and restore of one topic by all tools in turn, in several rounds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.benchmarks import ours, peers
from tests.benchmarks.data import DataSet, create_topic, new_name, offsets
from tests.benchmarks.measure import Job, MeasuringError, Run, Sample, of_module, rounds
from tests.benchmarks.ours import COLD, WARM
from tests.benchmarks.report import phases, table
from tests.support.kafka_truth import fingerprint

from lakebackup_jobs.demo.broker import Broker

RUST, RUST_AS_IS = "kafka-backup (Rust)", "kafka-backup (Rust), its defaults"
KCAT, PLAIN = "kcat to /dev/null", "confluent-kafka + fastavro"
WARM_SELECT, COLD_SELECT = f"{WARM}, --select-records", f"{COLD}, --select-records"
# Masks values without changing their length, so the result has as many records and bytes as the topic.
SELECT = """
SELECT partition, key, replace(value, 'c-', 'x-') AS value, headers, ts
FROM records('{}')
"""
LAKEBACKUP_TOOLS = (WARM, COLD, WARM_SELECT, COLD_SELECT)


@dataclass
class Bench:
    """The comparison on one broker with one data set and one warm session.

    `check`: compare the first restore of each tool record by record.
    """

    broker: Broker
    data: DataSet
    session: ours.Session
    folder: Path
    runs: int
    check: bool = True

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._repo, self._plain = self.folder / "ours", self.folder / "plain"
        self._log = self.folder / "command.log"
        self._rust = peers.KafkaBackup(self.broker.bootstrap, self.data, self.folder / "rust")
        self._cold = ours.cold(self._log)

    def backup(self) -> str:
        """Return Markdown: each tool's full backup of the topic. All rounds use the same destination."""
        jobs: dict[str, Job] = {
            WARM: lambda: self._backup(self.session.run),
            RUST: lambda: self._measure(self.folder / "rust", self._rust.backup),
            COLD: lambda: self._backup(self._cold),
            KCAT: lambda: peers.kcat(self.broker.bootstrap, self.data, self._log),
            PLAIN: self._backup_plain,
        }
        return self._report(jobs)

    def restore(self) -> str:
        """Return Markdown: each tool's restore of its own backup into a new topic of the same broker."""
        jobs: dict[str, Callable[[str], Sample | str]] = {
            WARM: lambda to: self._restore(self.session.run, to),
            RUST: self._restore_rust,
            COLD: lambda to: self._restore(self._cold, to),
            PLAIN: self._restore_plain,
        }
        if self.data.value_bytes > 1000:
            jobs[RUST_AS_IS] = lambda to: self._restore_rust(to, defaults=True)
        unchecked = set(jobs) if self.check else set()
        return self._report({name: self._to_new_topic(name, job, unchecked) for name, job in jobs.items()})

    def records(self) -> str:
        """Return Markdown: a plain restore, and one by a SELECT of all records with changed values."""
        sample = self._backup(self.session.run)
        if isinstance(sample, str):
            raise MeasuringError(sample)
        jobs: dict[str, Job] = {
            name: self._to_new_topic(name, partial(self._restore, run, select=select), set())
            for name, run, select in (
                (WARM, self.session.run, False),
                (WARM_SELECT, self.session.run, True),
                (COLD, self._cold, False),
                (COLD_SELECT, self._cold, True),
            )
        }
        samples = rounds(jobs, self.runs)
        pairs = ((WARM_SELECT, WARM), (COLD_SELECT, COLD))
        return "\n\n".join(table({name: samples[name] for name in pair}, pair[0]) for pair in pairs)

    def _report(self, jobs: dict[str, Job]) -> str:
        samples = rounds(jobs, self.runs)
        return f"{table(samples, WARM)}\n\n{phases(samples[WARM])}"

    def _measure(self, folder: Path, job: Job, bytes_before: int = 0) -> Sample | str:
        sample = job()
        return (
            replace(sample, written_bytes=size(folder) - bytes_before)
            if isinstance(sample, Sample)
            else sample
        )

    def _backup(self, run: Run) -> Sample | str:
        # The peers back up records only, so consumer groups are excluded.
        options = ("--groups", "none", "--mode", "full")
        words = ours.backup_topics(self.broker.bootstrap, self.data.topic, self._repo, *options)
        sample = self._measure(self._repo, lambda: run(words), size(self._repo))
        if (
            isinstance(sample, Sample)
            and sample.result.get("entries", self.data.records) != self.data.records
        ):
            raise MeasuringError(f"{sample.result['entries']} records backed up, not {self.data.records}")
        return sample

    def _backup_plain(self) -> Sample | str:
        shutil.rmtree(self._plain, ignore_errors=True)
        self._plain.mkdir()
        return self._measure(self._plain, lambda: self._plain_command("backup", self.data.topic))

    def _to_new_topic(self, name: str, job: Callable[[str], Sample | str], unchecked: set[str]) -> Job:
        """Return a job that restores into a new topic and counts the restored offsets."""

        def run() -> Sample | str:
            with new_name(self.broker.bootstrap, self.data) as target:
                sample = job(target)
                if isinstance(sample, str):
                    return sample
                offset_count = offsets(self.broker.bootstrap, target)
                # lakebackup's restore is transactional: each commit marker takes an offset too
                if offset_count < self.data.records or (
                    offset_count > self.data.records and name not in LAKEBACKUP_TOOLS
                ):
                    raise MeasuringError(f"{offset_count} offsets in {target}, not {self.data.records}")
                if name in unchecked:
                    self._compare(target)
                    unchecked.discard(name)
                folders = (self.broker.folder / "data").glob(f"{target}-*")
                return replace(sample, written_bytes=sum(map(size, folders)))

        return run

    def _compare(self, target: str) -> None:
        if fingerprint(self.broker.bootstrap, target) != fingerprint(self.broker.bootstrap, self.data.topic):
            raise MeasuringError(f"{target} does not hold what {self.data.topic} holds")

    def _restore(self, run: Run, target: str, *, select: bool = False) -> Sample | str:
        words = ours.restore_topics(self.broker.bootstrap, self.data.topic, self._repo, target)
        return run([*words, "--select-records", SELECT.format(self.data.topic)] if select else words)

    def _restore_rust(self, target: str, *, defaults: bool = False) -> Sample | str:
        create_topic(self.broker.bootstrap, target)
        return self._rust.restore(target, defaults=defaults)

    def _restore_plain(self, target: str) -> Sample | str:
        create_topic(self.broker.bootstrap, target)
        return self._plain_command("restore", target)

    def _plain_command(self, verb: str, topic: str) -> Sample:
        return Sample(of_module("plain", verb, self.broker.bootstrap, topic, self._plain, log=self._log))


def size(folder: Path) -> int:
    """Return the bytes on disk of all files below a folder. Kafka's indexes are sparse files."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
