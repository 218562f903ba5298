"""Measures the events of a change feed that one processor captures in a second, and the memory it takes.

`python -m tests.benchmarks.changelog_capture JSON` is the measured process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka.admin import AdminClient
from tests.benchmarks.data import create_topic
from tests.benchmarks.measure import progress
from tests.benchmarks.report import markdown
from tests.support.change_load import load

from lakebackup_jobs.demo.broker import Broker

EVENTS = 2_000_000
#: Settings that differ from the first case: regions of the feed, bytes of a value, codec, encryption, and the
#: factor for the number of events.
CASES: dict[str, dict[str, Any]] = {
    "values of 100 bytes, 8 regions, zstd": {},
    "lz4": {"codec": "lz4"},
    "zstd, encrypted": {"encrypt": True},
    "one hot region": {"regions": 1},
    "one hot region, 4 times as many events": {"regions": 1, "times": 4},
    "values of 1 KiB": {"value_bytes": 1024, "times": 0.25},
}


def capturing(broker: Broker, folder: Path, runs: int, scale: float) -> str:
    """Return Markdown: medians of `runs` captures. Each is a new process with a task that reads the feed."""
    head = ["feed", "million events", "events/s", "CPU s per million"]
    head += ["peak memory, MB", "files, MB"]
    rows = []
    for name, case in CASES.items():
        settings = {"regions": 8, "value_bytes": 100, "codec": "zstd", "encrypt": False, "times": 1.0, **case}
        topic = f"capture-{settings['regions']}-{settings['value_bytes']}-{settings['times']}"
        events = round(EVENTS * settings["times"] * scale)
        _fill(broker.bootstrap, topic, events, settings)
        settings |= {"bootstrap": broker.bootstrap, "topic": topic}
        measurements = [_measure(settings, folder) for _ in range(runs)]
        seconds, cpu, peak, stored_bytes, entries = (
            median(measurement[column] for measurement in measurements)
            for column in ("seconds", "cpu_s", "peak", "stored", "entries")
        )
        rows.append([
            name, f"{entries / 1e6:.2f}", f"{entries / seconds:,.0f}",
            f"{cpu / entries * 1e6:.2f}", f"{peak / 1e6:.0f}", f"{stored_bytes / 1e6:.0f}",
        ])  # fmt: skip
        progress(f"{name}: {entries / seconds:,.0f} events/s")
    return markdown(head, rows)


def _fill(bootstrap: str, topic: str, events: int, settings: dict[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic in admin.list_topics(timeout=30).topics:
        return
    create_topic(bootstrap, topic, settings["regions"])
    load(bootstrap, topic, events=events, partitions=settings["regions"], value_bytes=settings["value_bytes"])


def _measure(settings: dict[str, Any], folder: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=folder) as run_folder:
        command = [sys.executable, "-m", __name__, json.dumps({**settings, "folder": run_folder})]
        measurement: dict[str, float] = json.loads(subprocess.check_output(command))
        return measurement


def _capture(settings: dict[str, Any]) -> dict[str, float]:
    """Capture a topic in this process. Returns the cost, without compilation: a few events come first."""
    from lakebackup.formats.logs.cipher import Cipher
    from lakebackup_jobs.kafka.admin.cluster import Cluster
    from lakebackup_jobs.logs.capture.flush_task import CaptureJob
    from lakebackup_jobs.logs.feeds import Range
    from lakebackup_jobs.logs.feeds.br import BrFeed

    client = {"bootstrap.servers": settings["bootstrap"]}
    cluster = Cluster(client)
    [topic] = cluster.describe([settings["topic"]])
    _, regions = cluster.positions([topic], "read_committed")
    all_ranges = tuple(Range(topic.scope, int(r.region), topic.epoch, r.low, r.end) for r in regions)
    first_ranges = tuple(Range(r.topic, r.partition, r.epoch, r.start, min(r.end, 1000)) for r in all_ranges)
    job = CaptureJob(
        uri=settings["folder"],
        destination="d",
        source="bench",
        backup_id="20260101T000000Z-00000001",
        number=1,
        parent=None,
        client=client,
        feed=BrFeed((settings["topic"],)),
        context={},
        tasks=(first_ranges, all_ranges),
        codec=settings["codec"],
        cipher=Cipher("k", b"k" * 32) if settings["encrypt"] else None,
    )
    job.run(0)
    started, usage_before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    row = job.run(1)
    usage_after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.monotonic() - started,
        "cpu_s": usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime,
        "peak": usage_after.ru_maxrss << 10,
        "stored": row["bytes"],
        "entries": row["entries"],
    }


if __name__ == "__main__":
    print(json.dumps(_capture(json.loads(sys.argv[1]))))
