"""How many events of a change feed one processor captures in a second, and the memory it takes.

`python -m tests.benchmarks.changelog_capture JSON` is one measured process.
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
#: What is measured: regions that hold the events, bytes of a value, codec, whether files are encrypted.
CASES: dict[str, dict[str, Any]] = {
    "values of 100 bytes, 8 regions, zstd": {},
    "lz4": {"codec": "lz4"},
    "zstd, encrypted": {"encrypt": True},
    "one hot region": {"regions": 1},
    "one hot region, 4 times as many events": {"regions": 1, "times": 4},
    "values of 1 KiB": {"value_bytes": 1024, "times": 0.25},
}


def capturing(broker: Broker, folder: Path, runs: int, scale: float) -> str:
    """Markdown: medians of `runs` captures in new processes, each of one task that reads the whole feed."""
    head = ["feed", "million events", "events/s", "CPU s per million"]
    head += ["peak memory, MB", "files, MB"]
    rows = []
    for name, case in CASES.items():
        about = {"regions": 8, "value_bytes": 100, "codec": "zstd", "encrypt": False, "times": 1.0, **case}
        topic = f"capture-{about['regions']}-{about['value_bytes']}-{about['times']}"
        events = round(EVENTS * about["times"] * scale)
        _fill(broker.bootstrap, topic, events, about)
        about |= {"bootstrap": broker.bootstrap, "topic": topic}
        found = [_measured(about, folder) for _ in range(runs)]
        seconds, cpu, peak, stored, entries = (
            median(one[column] for one in found)
            for column in ("seconds", "cpu_s", "peak", "stored", "entries")
        )
        rows.append([
            name, f"{entries / 1e6:.2f}", f"{entries / seconds:,.0f}",
            f"{cpu / entries * 1e6:.2f}", f"{peak / 1e6:.0f}", f"{stored / 1e6:.0f}",
        ])  # fmt: skip
        progress(f"{name}: {entries / seconds:,.0f} events/s")
    return markdown(head, rows)


def _fill(bootstrap: str, topic: str, events: int, about: dict[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic in admin.list_topics(timeout=30).topics:
        return
    create_topic(bootstrap, topic, about["regions"])
    load(bootstrap, topic, events=events, partitions=about["regions"], value_bytes=about["value_bytes"])


def _measured(about: dict[str, Any], folder: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, "-m", __name__, json.dumps({**about, "folder": place})]
        found: dict[str, float] = json.loads(subprocess.check_output(command))
        return found


def _one(about: dict[str, Any]) -> dict[str, float]:
    """Capture a topic in this process; a few events first, since compiling is not what is measured."""
    from lakebackup.formats.logs.cipher import Cipher
    from lakebackup_jobs.kafka.admin.cluster import Cluster
    from lakebackup_jobs.logs.capture.flush_task import CaptureJob
    from lakebackup_jobs.logs.feeds import Range
    from lakebackup_jobs.logs.feeds.br import BrFeed

    client = {"bootstrap.servers": about["bootstrap"]}
    cluster = Cluster(client)
    [topic] = cluster.describe([about["topic"]])
    _, regions = cluster.positions([topic], "read_committed")
    whole = tuple(Range(topic.scope, int(r.region), topic.epoch, r.low, r.end) for r in regions)
    few = tuple(Range(r.topic, r.partition, r.epoch, r.start, min(r.end, 1000)) for r in whole)
    job = CaptureJob(
        uri=about["folder"],
        destination="d",
        source="bench",
        backup_id="20260101T000000Z-00000001",
        number=1,
        parent=None,
        client=client,
        feed=BrFeed((about["topic"],)),
        context={},
        tasks=(few, whole),
        codec=about["codec"],
        cipher=Cipher("k", b"k" * 32) if about["encrypt"] else None,
    )
    job.run(0)
    begun, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    row = job.run(1)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.monotonic() - begun,
        "cpu_s": after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime,
        "peak": after.ru_maxrss << 10,
        "stored": row["bytes"],
        "entries": row["entries"],
    }


if __name__ == "__main__":
    print(json.dumps(_one(json.loads(sys.argv[1]))))
