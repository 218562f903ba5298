"""Compaction of a chain of backups, beside plain Python over the same files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.benchmarks.data import DataSet, delete_topic, fill
from tests.benchmarks.measure import MeasuringError, of_command, of_module, progress
from tests.benchmarks.ours import COMMAND
from tests.benchmarks.report import Sample, phases, table
from tests.benchmarks.topics import COLD, WARM, phases_of, size

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.measure import Cost
    from tests.benchmarks.ours import Session

    from lakebackup_jobs.demo.broker import Broker

COMPACTED = 4
_PLAIN = "fastavro and a dict"


def compaction(broker: Broker, data: DataSet, session: Session, folder: Path, runs: int) -> str:
    """Markdown: the latest of each key (a million of them), of copies of a full and incremental backups."""
    made, here, log = folder / "made", folder / "copy", folder / "command.log"
    _make(broker, data, session, made)
    samples: dict[str, list[Sample | None]] = {name: [] for name in (WARM, COLD, _PLAIN)}
    kept = set()
    for number in range(-1, runs):  # the first is not counted: workers start, compiled code is loaded
        for name in samples:
            shutil.copytree(made, here)
            before, said = size(here), {}
            cost: Cost
            if name == WARM:
                cost, said = session.measured("compact", destination=str(here))
                kept.add(said["kept_entries"])
            elif name == COLD:
                words = ["compact", "--pattern", ".*", "--all-keyed", "--from", str(here)]
                cost = of_command([*COMMAND, *words], log)
            else:
                cost = of_module("plain", "compact", "", data.topic, here, log=log)
                kept.add(int((here / "count").read_text("ascii")))
            if number >= 0:
                samples[name].append(Sample(cost, size(here) - before, phases_of(said)))
            progress(f"round {number + 1}, {name}: {cost.seconds:.2f} s")
            shutil.rmtree(here)
    shutil.rmtree(folder)
    if len(kept) != 1:
        raise MeasuringError(f"one keeps {min(kept)} records, the other {max(kept)}")
    return f"{table(samples, WARM)}\n\n{phases(samples[WARM])}\n\nKept: {kept.pop():,} records."


def _make(broker: Broker, data: DataSet, session: Session, made: Path) -> None:
    made.parent.mkdir(parents=True, exist_ok=True)
    for number in range(COMPACTED):
        step = replace(data, records=data.records * (number + 1) // COMPACTED)
        fill(broker.bootstrap, step, data.records * number // COMPACTED)
        where = {"bootstrap": broker.bootstrap, "topic": data.topic, "destination": str(made)}
        session.ask("backup", **where, mode="auto")
    delete_topic(broker.bootstrap, data.topic)
