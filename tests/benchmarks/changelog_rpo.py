"""Measures the lag of a log task under load, and the CPU that the task costs the broker.

`python -m tests.benchmarks.changelog_rpo BOOTSTRAP TOPIC EVENTS RATE` is the process that produces.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from tests.benchmarks.data import create_topic
from tests.benchmarks.measure import progress
from tests.benchmarks.report import markdown
from tests.support.change_load import load

from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.control.status import waiting
from lakebackup_jobs.logs.control.verbs import LogTasks
from lakebackup_jobs.logs.task import TaskSettings

#: Events per second. The rates run in this order until the task falls behind.
RATES = (10_000, 25_000, 50_000, 75_000, 100_000)
FLUSH_S = 10.0
BOUND_S = 30.0
PARTITIONS = 4
# Duration of the run at each rate. Its first part, with the job's first flushes, is not counted.
_SECONDS, _WARM_S = 90.0, 25.0


def rpo(broker: Broker, folder: Path, scale: float) -> str:
    """Return Markdown: checkpoint lag by events per second; the broker's CPU with and without the task."""
    repo = LogTasks(str(folder), None, {})
    CatalogWriter(None, str(folder)).migrate()
    head = ["events/s asked", "events/s sent", "lag, median s", "lag, most s", "flush, median s", "flushes"]
    rows = []
    costs = []
    for rate in RATES:
        measurement = _measure(broker, repo, rate, _SECONDS * scale)
        rows.append([f"{rate:,}", *measurement.cells()])
        progress(f"{rate:,} events/s: lag {measurement.max_lag:.1f} s at most")
        if measurement.max_lag > BOUND_S:
            break
    for name, with_task in (("without the task", False), ("with it", True)):
        cost = _cost(broker, repo, with_task, 25_000, _SECONDS * scale / 2)
        costs.append([name, f"{cost:.2f}"])
        progress(f"broker {name}: {cost:.2f} CPU s per million events")
    of_broker = markdown(["broker's CPU", "s per million events"], costs)
    return f"{markdown(head, rows)}\n\n{of_broker}"


class _Measurement:
    def __init__(self, lags: list[float], rate: float, flushes: list[float]) -> None:
        self.lags, self.rate, self.flushes = (
            lags or [float("inf")],
            rate,
            flushes or [float("nan")],
        )

    @property
    def max_lag(self) -> float:
        return max(self.lags)

    def cells(self) -> list[str]:
        lag, flush = median(self.lags), median(self.flushes)
        return [
            f"{self.rate:,.0f}", f"{lag:.1f}", f"{self.max_lag:.1f}", f"{flush:.1f}", str(len(self.flushes)),
        ]  # fmt: skip


def _measure(broker: Broker, repo: LogTasks, rate: int, seconds: float) -> _Measurement:
    name, topic = f"rate-{rate}", _topic(broker, f"rate-{rate}")
    started = time.monotonic()
    with _producing(broker, topic, rate, seconds) as producer, _capturing(broker, repo, name, topic):
        lags = []
        while producer.poll() is None:
            time.sleep(0.5)
            lag = repo.status(name)["checkpoint_lag_s"]
            if time.monotonic() - started > _WARM_S and lag is not None:
                lags.append(lag)
        elapsed_s = time.monotonic() - started
    rows = repo.reader().select(f"SELECT finished_at - started_at AS us FROM backups WHERE source = '{name}'")
    flushes = [us / 1e6 for us in rows.read_all()["us"].to_pylist()]
    return _Measurement(lags, rate * seconds / elapsed_s, flushes)


def _cost(broker: Broker, repo: LogTasks, with_task: bool, rate: int, seconds: float) -> float:
    """Return CPU seconds of the broker per million events."""
    name = "cost-with" if with_task else "cost-without"
    topic = _topic(broker, name)
    if not with_task:
        cpu_before = _cpu(broker)
        with _producing(broker, topic, rate, seconds) as producer:
            producer.wait()
        return (_cpu(broker) - cpu_before) / (rate * seconds) * 1e6
    with _producing(broker, topic, 100, 1) as first:
        first.wait()
    with _capturing(broker, repo, name, topic) as job:
        while not repo.status(name)["flushes"]:
            _require_running(job)
            time.sleep(0.5)
        cpu_before = _cpu(broker)
        with _producing(broker, topic, rate, seconds) as producer:
            producer.wait()
        while sum((waiting(repo.destination, None, repo.task(name), {}) or {}).values()):
            _require_running(job)
            time.sleep(0.5)
    return (_cpu(broker) - cpu_before) / (rate * seconds) * 1e6


def _cpu(broker: Broker) -> float:
    [process] = [p for p in psutil.process_iter(["cmdline"]) if _is_broker(p, broker)]
    times = process.cpu_times()
    return times.user + times.system


def _is_broker(process: psutil.Process, broker: Broker) -> bool:
    command = process.info["cmdline"] or []
    return "kafka.Kafka" in command and any(str(broker.folder) in part for part in command)


def _topic(broker: Broker, name: str) -> str:
    create_topic(broker.bootstrap, name, PARTITIONS)
    return name


def _require_running(job: subprocess.Popen[bytes]) -> None:
    if job.poll() is not None:
        raise RuntimeError(
            f"the task's job ended with {job.returncode}; its log is beside the broker's folder"
        )


@contextmanager
def _producing(broker: Broker, topic: str, rate: int, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", __name__, broker.bootstrap, topic, str(int(rate * seconds)), str(rate)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def _capturing(broker: Broker, repo: LogTasks, name: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the job of a log task as a separate process, and yield that process."""
    settings = TaskSettings("br", broker.bootstrap, (topic,), flush_every_s=FLUSH_S)
    control.start(repo, name, settings)  # approves the broker for this account too
    log = (broker.folder.parent / f"{name}.log").open("wb")
    command = [sys.executable, "-m", "lakebackup_jobs", "log", "run", name, "--repo", repo.destination]
    with log, subprocess.Popen([*command, "--json"], stdout=log, stderr=log) as process:
        try:
            while not repo.at_work(name):
                _require_running(process)
                time.sleep(0.2)
            yield process
            control.stop(repo, name)
        finally:
            process.terminate()


if __name__ == "__main__":
    bootstrap, topic, events, rate = sys.argv[1:]
    load(bootstrap, topic, events=int(events), partitions=PARTITIONS, rate=float(rate))
