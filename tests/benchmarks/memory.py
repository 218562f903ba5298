"""Measures whether the driver's memory grows with the number of records. It must not."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.data import DataSet, delete_topic, fill
from tests.benchmarks.measure import progress
from tests.benchmarks.ours import Session, backup_topics, restore_topics
from tests.benchmarks.report import markdown

from lakebackup_jobs.demo.broker import Broker

MILLIONS = (1, 5, 20)
_COLUMNS = ("python_peak", "heap_live", "heap_peak", "workers_now")


def driver_memory(broker: Broker, folder: Path, scale: float) -> str:
    """Return Markdown: backup and restore of a growing topic of 100-byte records, in a new session per size.

    In local mode the JVM is both driver and executor. Records never enter it.
    """
    head = ["million records", "job", "seconds", "driver Python, peak MB", "JVM heap live after, MB"]
    head += ["JVM heap peak, MB", "Python workers after, MB"]
    rows = []
    filled = 0
    for millions in MILLIONS:
        data = DataSet("memory", round(millions * 1_000_000 * scale), 100, compression="lz4")
        fill(broker.bootstrap, data, filled)
        filled = data.records
        repo, target = folder / f"memory-{millions}", f"{data.topic}-restored"
        commands = {
            "backup": backup_topics(broker.bootstrap, data.topic, repo, "--groups", "none"),
            "restore": restore_topics(broker.bootstrap, data.topic, repo, target),
        }
        with Session(folder / "memory.log") as session:
            for verb, words in commands.items():
                session.ask("forget-peak")
                seconds = session.ask(*words)["seconds"]
                memory_bytes = session.ask("memory")
                figures = [f"{memory_bytes[column] / 1e6:.0f}" for column in _COLUMNS]
                rows.append([f"{data.records / 1e6:g}", verb, f"{seconds:.1f}", *figures])
                progress(f"{millions} M, {verb}: {seconds:.1f} s")
        delete_topic(broker.bootstrap, target)
    delete_topic(broker.bootstrap, data.topic)
    return markdown(head, rows)
