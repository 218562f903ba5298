"""A merge of a chain of backups, beside copies of the same files and a loop in plain Python."""

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

MERGED = 6
COPY, HASHED, PLAIN = "reading and writing", "the same with sha256 of both", "fastavro"
_VERBS = {COPY: "copy", HASHED: "hashed", PLAIN: "merge"}


def merging(broker: Broker, data: DataSet, session: Session, folder: Path, runs: int) -> str:
    """Markdown: a full and five incremental backups become one full."""
    made, log = folder / "made", folder / "command.log"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(MERGED):
        step = replace(data, records=data.records * (number + 1) // MERGED)
        fill(broker.bootstrap, step, data.records * number // MERGED)
        where = {"bootstrap": broker.bootstrap, "topic": data.topic, "destination": str(made)}
        session.ask("backup", **where, mode="auto")
    delete_topic(broker.bootstrap, data.topic)
    stored = sum(file.stat().st_size for file in made.rglob("*.data"))
    samples: dict[str, list[Sample | None]] = {WARM: [], COLD: [], COPY: [], HASHED: [], PLAIN: []}
    here = folder / "copy"
    for number in range(-1, runs):  # the first is not counted: workers start, compiled code is loaded
        for name in samples:
            shutil.copytree(made, here)
            before, said = size(here), {}
            if name == WARM:
                cost, said = session.measured("merge", destination=str(here))
                if said["entries"] != data.records:
                    raise MeasuringError(f"{said['entries']} records were merged, not {data.records}")
            elif name == COLD:
                cost = of_command([*COMMAND, "merge", "1", "--from", str(here)], log)
            else:
                cost = _plain(_VERBS[name], here, data.topic, log)
            if number >= 0:
                samples[name].append(Sample(cost, size(here) - before, phases_of(said)))
            print(f"  round {number + 1}, {name}: {cost.seconds:.2f} s", file=sys.stderr)
            shutil.rmtree(here)
    shutil.rmtree(folder)
    return "\n\n".join(
        [table(samples, WARM), phases(samples[WARM]), f"Merged: {stored / 1e6:,.0f} MB of data files."]
    )


def _plain(verb: str, destination: Path, topic: str, log: Path) -> Cost:
    module = [sys.executable, "-m", "tests.benchmarks.plain"]
    return of_command([*module, verb, "", topic, str(destination)], log)
