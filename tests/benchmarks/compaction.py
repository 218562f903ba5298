"""Compaction of a chain of backups, beside a dict in plain Python over the same files."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.benchmarks.data import DataSet, delete_topic, fill
from tests.benchmarks.measure import MeasuringError, of_command
from tests.benchmarks.ours import COMMAND
from tests.benchmarks.report import Sample, phases, table
from tests.benchmarks.topics import COLD, WARM, phases_of, size

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.measure import Cost
    from tests.benchmarks.ours import Session

    from lakebackup_jobs.demo.broker import Broker

BACKUPS = 4
PLAIN = "fastavro and a dict"


def compaction(broker: Broker, data: DataSet, session: Session, folder: Path, runs: int) -> str:
    """Markdown: the latest of each key (a million of them) out of a full and three incremental backups."""
    made, log = folder / "made", folder / "command.log"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(BACKUPS):
        step = replace(data, records=data.records * (number + 1) // BACKUPS)
        fill(broker.bootstrap, step, data.records * number // BACKUPS)
        where = {"bootstrap": broker.bootstrap, "topic": data.topic, "destination": str(made)}
        session.ask("backup", **where, mode="auto")
    delete_topic(broker.bootstrap, data.topic)
    samples: dict[str, list[Sample | None]] = {WARM: [], COLD: [], PLAIN: []}
    here = folder / "copy"
    for number in range(-1, runs):  # the first is not counted: workers start, compiled code is loaded
        kept: set[int] = set()
        for name in samples:
            shutil.copytree(made, here)
            before, said = size(here), {}
            if name == WARM:
                cost, said = session.measured("compact", destination=str(here))
                kept.add(said["kept_entries"])
            elif name == COLD:
                cost = _cold(here, log)
            else:
                cost = _plain(here, data.topic, log)
                kept.add(int((here / "count").read_text("ascii")))
            if number >= 0:
                samples[name].append(Sample(cost, size(here) - before, phases_of(said)))
            print(f"  round {number + 1}, {name}: {cost.seconds:.2f} s", file=sys.stderr)
            shutil.rmtree(here)
        if len(kept) != 1:
            raise MeasuringError(f"one keeps {min(kept)} records, the other {max(kept)}")
    shutil.rmtree(folder)
    return "\n\n".join([table(samples, WARM), phases(samples[WARM]), f"Kept: {kept.pop():,} records."])


def _cold(destination: Path, log: Path) -> Cost:
    return of_command(
        [*COMMAND, "compact", "--pattern", ".*", "--all-keyed", "--from", str(destination)], log
    )


def _plain(destination: Path, topic: str, log: Path) -> Cost:
    module = [sys.executable, "-m", "tests.benchmarks.plain"]
    return of_command([*module, "compact", "", topic, str(destination)], log)
