"""Follows a topic under a steady load, is killed in the middle, and must miss and repeat no record.

The benchmark fails when a record is missing from the backups, is there twice, or when a process holds more
memory at its end than at its start.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import BinaryIO

import psutil
from confluent_kafka import KafkaError, Message, Producer
from tests.benchmarks import ours
from tests.benchmarks.data import create_topic, delete_topic, produce_records
from tests.benchmarks.measure import MeasuringError, progress
from tests.benchmarks.report import markdown
from tests.support.kafka_truth import records_below

from lakebackup import connect
from lakebackup.errors import Busy

TOPIC, PARTITIONS = "followed", 4
SECONDS, RATE, EVERY = 600.0, 2_000, "2s"
# A process may hold this much more in the last quarter of its life than in the second one.
GROWTH_ALLOWED = 1.15
_SETTLED_S = 100.0  # a shorter life is too short to judge: its processes still start
_TICK_S = 0.05
_START_S = 30.0  # a process that has run for so long has the lease, on a busy machine too
_LEASE_S = 90.0  # more than a lease lives that nobody renews
_SAMPLE_S = 2.0
_HEAD = ["life", "process", "MB in the 2nd quarter", "3rd", "last", "most MB"]


def following(bootstrap: str, folder: Path, seconds: float, rate: int) -> str:
    """Return Markdown: the memory of both lives of a follower, by quarters. Raises MeasuringError."""
    folder.mkdir(parents=True)
    create_topic(bootstrap, TOPIC, PARTITIONS)
    lives = []
    try:
        with _Load(bootstrap, rate) as load:
            for number, sign in enumerate((signal.SIGKILL, signal.SIGTERM), 1):
                life = _live(bootstrap, folder, seconds / 2, sign, load)
                progress(f"life {number}: {len(life)} samples, {load.sent:,} records sent")
                lives.append(life)
        # Records that came after the last batch of the follower.
        _run(folder, ours.backup_topics(bootstrap, TOPIC, folder / "repo", "--groups", "none"))
        _check_records(bootstrap, folder, load.sent)
    finally:
        delete_topic(bootstrap, TOPIC)
    rows = [row for number, life in enumerate(lives, 1) for row in _rows(number, life)]
    text = markdown(_HEAD, rows)
    progress(text)
    for number, life in enumerate(lives, 1):
        _check_memory(number, life)
    shutil.rmtree(folder)
    return f"{text}\n\n{load.sent:,} records, each backed up once."


@dataclass(frozen=True)
class _Memory:
    """Bytes at one time: resident ones of the driver and of its JVM, and those of all workers."""

    driver: int
    jvm: int
    workers: int


class _Load:
    """Sends numbered records to all partitions in turn, at a steady rate, while the block runs."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self._rate, self._over = rate, threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
        )
        self._thread = threading.Thread(target=self._send, name="load", daemon=True)
        self._errors: list[KafkaError] = []
        self.sent = 0

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._producer.flush(60) or self._errors:
            raise MeasuringError(f"the load lost records: {self._errors[:1]}")

    def _send(self) -> None:
        started = time.monotonic()
        while not self._over.wait(_TICK_S):
            for number in range(self.sent, round((time.monotonic() - started) * self._rate)):
                value = b"%d" % number + b" " * 100
                options = {"partition": number % PARTITIONS, "on_delivery": self._note_error}
                produce_records(self._producer, TOPIC, value, b"key-%d" % (number % 1000), **options)
                self.sent = number + 1
            self._producer.poll(0)

    def _note_error(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)


def _live(bootstrap: str, folder: Path, seconds: float, sign: int, load: _Load) -> list[_Memory]:
    """Follow for some time, then end the process by a signal. Returns what it held over time."""
    samples: list[_Memory] = []
    with _follower(bootstrap, folder) as process:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(_SAMPLE_S)
            if process.poll() is not None:
                raise MeasuringError(f"the follower ended with {process.returncode}:\n{_log_end(folder)}")
            samples.append(_memory(process.pid))
        if sign == signal.SIGKILL:
            os.killpg(process.pid, sign)
            process.wait(60)
            return samples
        process.send_signal(sign)
        if code := process.wait(120):
            raise MeasuringError(f"the follower ended with {code}:\n{_log_end(folder)}")
    if load.sent == 0:
        raise MeasuringError("the load sent nothing")
    return samples


@contextmanager
def _follower(bootstrap: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    options = ("--groups", "none", "--follow", "--every", EVERY)
    words = ours.backup_topics(bootstrap, TOPIC, folder / "repo", *options)
    command = [*ours.COMMAND, *map(str, words)]
    with (folder / "follow.log").open("ab") as log:
        process = _started(command, log)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def _started(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start a process, again and again while the lease of a killed one keeps it from running."""
    deadline = time.monotonic() + _LEASE_S
    while True:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(_START_S)
        except subprocess.TimeoutExpired:
            return process
        if code != Busy.exit_code or time.monotonic() > deadline:
            return process


def _log_end(folder: Path) -> str:
    return (folder / "follow.log").read_text("utf-8", "replace")[-3000:]


def _memory(pid: int) -> _Memory:
    process = psutil.Process(pid)
    jvm = workers = 0
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() == "java":
                jvm += child.memory_info().rss
            else:
                workers += child.memory_full_info().pss
    return _Memory(process.memory_info().rss, jvm, workers)


def _quarters(values: list[int]) -> list[float]:
    """Return the medians of the quarters of a process's life."""
    quarter = max(1, len(values) // 4)
    return [median(values[number * quarter : (number + 1) * quarter] or values[-1:]) for number in range(4)]


def _series(life: list[_Memory]) -> dict[str, list[int]]:
    return {
        "driver": [sample.driver for sample in life],
        "JVM": [sample.jvm for sample in life],
        "Python workers": [sample.workers for sample in life],
    }


def _rows(number: int, life: list[_Memory]) -> Iterator[list[str]]:
    for name, values in _series(life).items():
        figures = [*_quarters(values)[1:], max(values)]
        yield [str(number), name, *(f"{figure / 1e6:.0f}" for figure in figures)]


def _check_memory(number: int, life: list[_Memory]) -> None:
    if len(life) * _SAMPLE_S < _SETTLED_S:
        return
    for name, values in _series(life).items():
        _, second, _, last = _quarters(values)
        # The JVM's heap grows to its limit before the collector works; its peak has a limit of its own.
        if name != "JVM" and last > second * GROWTH_ALLOWED:
            raise MeasuringError(f"life {number}, {name}: {second / 1e6:.0f} MB, then {last / 1e6:.0f} MB")


def _run(folder: Path, words: list[object]) -> None:
    ours.cold(folder / "command.log")(words)


def _check_records(bootstrap: str, folder: Path, sent: int) -> None:
    """Compare the backups with what was sent: the numbers in a restored folder, and the catalog's files."""
    repo, target = folder / "repo", folder / "restored"
    _run(folder, ["restore", "topics", TOPIC, "--repo", repo, "--to", f"dir:{target}"])
    seen = bytearray(sent)
    for _, record in records_below(target):
        number = int(record.value or b"-1")
        if not 0 <= number < sent or number % PARTITIONS != record.partition:
            raise MeasuringError(f"a record that nobody sent: {record}")
        seen[number] += 1
    if missing := seen.count(0):
        raise MeasuringError(f"{missing} of {sent} records are missing, the first is {seen.index(0)}")
    if more := sum(count > 1 for count in seen):
        raise MeasuringError(f"{more} of {sent} records are there twice")
    [row] = connect(str(repo)).sql("SELECT sum(entries) AS entries FROM files").rows()
    if row["entries"] != sent:
        raise MeasuringError(f"the catalog counts {row['entries']} records in files, not {sent}")
