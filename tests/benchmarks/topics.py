"""Backup and restore of one topic by each tool, in turn, several rounds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import ours, peers
from tests.benchmarks.data import DataSet, create_topic, delete_topic, offsets
from tests.benchmarks.measure import Cost, MeasuringError, of_module, progress
from tests.benchmarks.report import Sample, phases, table
from tests.support.kafka_truth import fingerprint

from lakebackup_jobs.demo.broker import Broker

WARM, COLD = "lakebackup, warm session", "lakebackup, cold command"
RUST, RUST_AS_IS = "kafka-backup (Rust)", "kafka-backup (Rust), its defaults"
KCAT, PLAIN = "kcat to /dev/null", "confluent-kafka + fastavro"
_PHASES = ("before_s", "data_s", "after_s")

Job = Callable[[], Sample | None]


@dataclass
class Bench:
    """One broker, one data set, one warm session."""

    broker: Broker
    data: DataSet
    session: ours.Session
    folder: Path
    runs: int
    check: bool = True

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ours, self._plain = self.folder / "ours", self.folder / "plain"
        self._log = self.folder / "command.log"
        self._rust = peers.KafkaBackup(self.broker.bootstrap, self.data, self.folder / "rust")
        self._targets = 0
        self._failed: set[str] = set()

    def backup(self) -> str:
        """Markdown: every tool's full backup of the topic, each round to where the round before left it."""
        first = self._backup_warm()
        self._backup_warm()
        jobs: dict[str, Job] = {
            WARM: self._backup_warm,
            RUST: lambda: self._given(peers.KAFKA_BACKUP, self._rust.backup, self.folder / "rust", anew=True),
            COLD: lambda: self._writing(self._ours, self._backup_cold),
            KCAT: lambda: self._given(peers.KCAT, lambda: peers.kcat(*self._where(), self._log)),
            PLAIN: self._backup_plain,
        }
        samples = self._rounds(jobs)
        note = f"First backup of a session, with a new catalog: {first.cost.seconds:.2f} s."
        return "\n\n".join([table(samples, WARM, self._failed), phases(samples[WARM]), note])

    def restore(self) -> str:
        """Markdown: every tool's restore of its own backup into a new topic of the same broker."""
        first = self._to_new_topic(self._restore_warm)
        given = peers.program(peers.KAFKA_BACKUP)
        jobs: dict[str, Job] = {
            WARM: lambda: self._to_new_topic(self._restore_warm),
            RUST: lambda: self._to_new_topic(self._restore_rust) if given else None,
            COLD: lambda: self._to_new_topic(self._restore_cold),
            PLAIN: lambda: self._to_new_topic(self._restore_plain),
        }
        if given and self.data.value_bytes > 1000:
            jobs[RUST_AS_IS] = lambda: self._to_new_topic(lambda to: self._restore_rust(to, defaults=True))
        samples = self._rounds(jobs)
        note = f"First restore of a session: {first.cost.seconds:.2f} s."
        return "\n\n".join([table(samples, WARM, self._failed), phases(samples[WARM]), note])

    def _rounds(self, jobs: dict[str, Job]) -> dict[str, list[Sample | None]]:
        samples: dict[str, list[Sample | None]] = {name: [] for name in jobs}
        self._failed.clear()
        for number in range(self.runs):
            for name, job in jobs.items():
                try:
                    sample = job()
                except MeasuringError as failure:
                    self._failed.add(name)
                    progress(f"{name}: {failure}")
                    sample = None
                samples[name].append(sample)
                told = f"{sample.cost.seconds:.2f} s, {sample.cost.cpu_s:.2f} CPU s" if sample else "not run"
                progress(f"round {number + 1}, {name}: {told}")
            self.check = False  # the tools do the same in each round
        return samples

    def _where(self) -> tuple[str, DataSet]:
        return self.broker.bootstrap, self.data

    def _writing(self, folder: Path, job: Callable[[], Cost], *, anew: bool = False) -> Sample:
        before = 0 if anew else size(folder)
        cost = job()
        return Sample(cost, size(folder) - before, {})

    def _given(
        self, peer: str, job: Callable[[], Cost], folder: Path | None = None, *, anew: bool = False
    ) -> Sample | None:
        if not peers.program(peer):
            return None
        return self._writing(folder, job, anew=anew) if folder else Sample(job(), 0, {})

    def _backup_warm(self) -> Sample:
        before = size(self._ours)
        cost, said = self.session.measured(
            "backup", bootstrap=self.broker.bootstrap, topic=self.data.topic, destination=str(self._ours)
        )
        if said["entries"] != self.data.records:
            raise MeasuringError(f"{said['entries']} records backed up, not {self.data.records}")
        return Sample(cost, size(self._ours) - before, phases_of(said))

    def _backup_cold(self) -> Cost:
        return ours.cold_backup(self.broker.bootstrap, self.data.topic, self._ours, self._log)

    def _backup_plain(self) -> Sample:
        shutil.rmtree(self._plain, ignore_errors=True)
        self._plain.mkdir()
        return self._writing(self._plain, lambda: self._plain_command("backup", self.data.topic), anew=True)

    def _to_new_topic(self, job: Callable[[str], tuple[Cost, dict[str, Any]]]) -> Sample:
        self._targets += 1
        target = f"{self.data.topic}-restored-{self._targets}"
        try:
            cost, said = job(target)
            found = offsets(self.broker.bootstrap, target)
            # ours is transactional: a commit marker takes an offset too
            if found < self.data.records or (found > self.data.records and "restore_id" not in said):
                raise MeasuringError(f"{found} offsets in {target}, not {self.data.records}")
            if self.check:
                self._compare(target)
            written = sum(size(folder) for folder in (self.broker.folder / "data").glob(f"{target}-*"))
            return Sample(cost, written, phases_of(said))
        finally:
            delete_topic(self.broker.bootstrap, target)

    def _compare(self, target: str) -> None:
        if fingerprint(self.broker.bootstrap, target) != fingerprint(self.broker.bootstrap, self.data.topic):
            raise MeasuringError(f"{target} does not hold what {self.data.topic} holds")

    def _restore_warm(self, target: str) -> tuple[Cost, dict[str, Any]]:
        where = {"bootstrap": self.broker.bootstrap, "topic": self.data.topic, "destination": str(self._ours)}
        return self.session.measured("restore", **where, target=target)

    def _restore_cold(self, target: str) -> tuple[Cost, dict[str, Any]]:
        cost = ours.cold_restore(self.broker.bootstrap, self.data.topic, self._ours, target, self._log)
        return cost, {"restore_id": ""}

    def _restore_rust(self, target: str, *, defaults: bool = False) -> tuple[Cost, dict[str, Any]]:
        create_topic(self.broker.bootstrap, target)
        return self._rust.restore(target, defaults=defaults), {}

    def _restore_plain(self, target: str) -> tuple[Cost, dict[str, Any]]:
        create_topic(self.broker.bootstrap, target)
        return self._plain_command("restore", target), {}

    def _plain_command(self, verb: str, topic: str) -> Cost:
        return of_module("plain", verb, self.broker.bootstrap, topic, self._plain, log=self._log)


def phases_of(said: dict[str, Any]) -> dict[str, float]:
    """Seconds of each phase that a warm session told of."""
    return {name: said[name] for name in _PHASES if name in said}


def size(folder: Path) -> int:
    """Bytes on disk of all files below a folder (Kafka's indexes are long and mostly holes)."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
