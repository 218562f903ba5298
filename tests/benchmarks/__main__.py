"""`python -m tests.benchmarks [CASE...]` prints Markdown on standard output and progress on standard error.

Other tools are found on the path, or where PEER_KCAT, PEER_KAFKA_BACKUP, PEER_RESTIC, PEER_RCLONE, PEER_RSYNC
and PEER_KOPIA say. The figures are valid only on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import machine
from tests.benchmarks.catalog import catalog, every_question
from tests.benchmarks.chains import chains
from tests.benchmarks.changelog_capture import capturing
from tests.benchmarks.changelog_restore import restoring
from tests.benchmarks.changelog_rpo import rpo
from tests.benchmarks.cold import cold
from tests.benchmarks.cost import cost
from tests.benchmarks.data import DataSet, fill
from tests.benchmarks.encryption import encryption, encryption_of_snapshots
from tests.benchmarks.growth import growth
from tests.benchmarks.history import history
from tests.benchmarks.measure import MeasuringError, progress
from tests.benchmarks.memory import driver_memory
from tests.benchmarks.ours import Session
from tests.benchmarks.queue_writers import writing
from tests.benchmarks.queues import Ratio
from tests.benchmarks.shapes.every import SHAPES, Measurement
from tests.benchmarks.shapes.following import SECONDS
from tests.benchmarks.snapshots import snapshots
from tests.benchmarks.topics import Bench
from tests.benchmarks.upkeep import COMPACTED, MERGED, Chain

from lakebackup_jobs.demo.broker import Broker

SETS = {"small": (2_000_000, 200), "large": (100_000, 10_240)}
BROKER = (
    "cold",
    "cost",
    *SETS,
    "records",
    "encryption",
    "compact",
    "merge",
    "memory",
    "capture",
    "rpo",
    "queue-ratio",
    "queue-writers",
    "shapes",
)
# The heap with which Kafka's own script starts a broker.
_JAVA_OPTIONS = ("-Xms1g", "-Xmx1g")
CASES = (*BROKER, "chains", "catalog", "growth", "history", "snapshots", "log-restore")


def main(argv: list[str] | None = None) -> int:
    """Run the chosen cases. Returns 1 when one of them failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)} (default: all)")
    parser.add_argument("--runs", type=int, default=5, help="rounds of each comparison (default: 5)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="fraction of the records, to try the harness"
    )
    parser.add_argument(
        "--no-check", action="store_true", help="do not compare restored topics record by record"
    )
    parser.add_argument(
        "--millions", type=int, nargs="+", default=[1, 10], help="file rows of the catalogs (default: 1 10)"
    )
    parser.add_argument(
        "--leaving", type=int, default=1, help="tenths of the file rows that leave soon (default: 1)"
    )
    parser.add_argument(
        "--thousand-backups", type=int, default=2, help="backups of the chains, 100 files each (default: 2)"
    )
    parser.add_argument(
        "--days", type=int, nargs="*", default=[1, 10, 100], help="of a log's flushes (default: 1 10 100)"
    )
    parser.add_argument(
        "--weeks", type=int, nargs="*", default=[0, 10, 100], help="of deleted backups (default: 0 10 100)"
    )
    parser.add_argument(
        "--backups",
        type=int,
        nargs="+",
        default=[10, 300, 1_000, 3_000, 10_000],
        help="one after another, before the backup that is measured (default: 10 300 1000 3000 10000)",
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="of the case shapes (default: all)"
    )
    parser.add_argument(
        "--follow-seconds",
        type=float,
        default=SECONDS,
        help=f"duration of the shape follow at --scale 1 (default: {SECONDS:.0f})",
    )
    parser.add_argument(
        "--gigabytes",
        type=float,
        default=4.0,
        help="size of an engine's store beside queues (default: 4)",
    )
    parser.add_argument("--keep", type=Path, help="make the catalogs here and leave them, to use them again")
    options = parser.parse_args(argv)
    cases, failed = options.cases or list(CASES), False
    if unknown := set(cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="lakebackup-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        # Keeps what the cases approve out of the account's own state folder.
        os.environ.setdefault("XDG_STATE_HOME", str(folder / "state"))
        print(machine.describe(folder), flush=True)
        broker = None
        if set(BROKER) & set(cases):
            broker = stack.enter_context(Broker(folder / "broker", java_options=_JAVA_OPTIONS))
        for case in [case for case in CASES if case in cases]:
            progress(case)
            try:
                for title, text in Run(case, folder, options, broker).tables():
                    print(f"\n### {title}\n\n{text}", flush=True)
            except Exception:  # noqa: BLE001 - the other cases go on
                failed = True
                traceback.print_exc()
    return int(failed)


@dataclass(frozen=True)
class Run:
    """One case. `tables` yields the title and the Markdown of each of its tables."""

    case: str
    folder: Path
    options: argparse.Namespace
    broker: Any

    def tables(self) -> Iterator[tuple[str, str]]:
        make_tables = self._set if self.case in SETS else getattr(self, f"_{self.case.replace('-', '_')}")
        return make_tables()

    @property
    def _case_folder(self) -> Path:
        return self.folder / self.case

    def _session(self) -> Session:
        return Session(self.folder / f"{self.case}.log")

    def _data(self, name: str, size: str) -> DataSet:
        records, value_bytes = SETS[size]
        return DataSet(name, round(records * self.options.scale), value_bytes)

    def _cold(self) -> Iterator[tuple[str, str]]:
        yield "Cold commands", cold(self.broker, self._case_folder, self.options.runs, self.options.scale)

    def _cost(self) -> Iterator[tuple[str, str]]:
        with self._session() as session:
            text = cost(self.broker, session, self._case_folder, self.options.runs, self.options.scale)
        yield "What n units of work cost", text

    def _set(self) -> Iterator[tuple[str, str]]:
        data, check = self._data(self.case, self.case), not self.options.no_check
        fill(self.broker.bootstrap, data)
        with self._session() as session:
            bench = Bench(self.broker, data, session, self._case_folder, self.options.runs, check)
            yield f"Backup of {data}", bench.backup()
            yield f"Restore of {data}", bench.restore()

    def _records(self) -> Iterator[tuple[str, str]]:
        data = self._data("records", "small")
        fill(self.broker.bootstrap, data)
        with self._session() as session:
            text = Bench(self.broker, data, session, self._case_folder, self.options.runs).records()
        yield f"Restore of {data}, plain and by SELECT of records", text

    def _encryption(self) -> Iterator[tuple[str, str]]:
        for size in SETS:
            data = self._data(f"encryption-{size}", size)
            fill(self.broker.bootstrap, data)
            folder = self._case_folder / size
            with self._session() as session:
                text = encryption(self.broker, data, session, folder, self.options.runs)
            yield f"Backup and restore of {data}, encrypted and signed or not", text
        text = encryption_of_snapshots(self._case_folder / "files", self.options.runs, self.options.scale)
        yield "Backup and restore of 2 GB of files, encrypted and signed or not", text

    def _compact(self) -> Iterator[tuple[str, str]]:
        data = self._data("compact", "small")
        with self._session() as session:
            text = Chain(self.broker, data, session, self._case_folder).compaction(self.options.runs)
        yield f"Compaction of {COMPACTED} backups of {data}", text

    def _merge(self) -> Iterator[tuple[str, str]]:
        for size in SETS:
            data = self._data(f"merge-{size}", size)
            with self._session() as session:
                text = Chain(self.broker, data, session, self._case_folder).merge(self.options.runs)
            yield f"Merge of {MERGED} backups of {data}", text

    def _memory(self) -> Iterator[tuple[str, str]]:
        yield "Memory of the driver", driver_memory(self.broker, self.folder, self.options.scale)

    def _capture(self) -> Iterator[tuple[str, str]]:
        text = capturing(self.broker, self.folder, self.options.runs, self.options.scale)
        yield "Capture of a change feed, one task", text

    def _rpo(self) -> Iterator[tuple[str, str]]:
        text = rpo(self.broker, self._case_folder, self.options.scale)
        yield "A log task under load, flushes of 10 s", text

    def _queue_ratio(self) -> Iterator[tuple[str, str]]:
        with self._session() as session:
            text = Ratio(self.broker, session, self._case_folder, self._store()).rounds(self.options.runs)
        yield "Queues of an engine: full and differential", text

    def _queue_writers(self) -> Iterator[tuple[str, str]]:
        with self._session() as session:
            text = writing(self.broker, session, self._case_folder, self._store() // 4, self.options.runs)
        yield "Writers at full speed beside backups of their queues", text

    def _shapes(self) -> Iterator[tuple[str, str]]:
        options, failed = self.options, []
        for name in options.shapes:
            title, measure_shape = SHAPES[name]
            progress(name)
            folder = self._case_folder / name
            measurement = Measurement(
                self.broker, folder, options.runs, options.scale, options.follow_seconds
            )
            try:
                yield title, measure_shape(measurement)
            except Exception:  # noqa: BLE001 - the other shapes go on
                failed.append(name)
                traceback.print_exc()
        if failed:
            raise MeasuringError(f"these shapes failed: {', '.join(failed)}")

    def _store(self) -> int:
        return round(self.options.gigabytes * self.options.scale * 1e9)

    def _chains(self) -> Iterator[tuple[str, str]]:
        count = 1000 * self.options.thousand_backups
        text = chains(self.options.keep or self._case_folder, count, self.options.runs)
        yield f"Chains of {count:,} backups", text

    def _catalog(self) -> Iterator[tuple[str, str]]:
        options = self.options
        folder = options.keep or self._case_folder
        text = catalog(folder, options.millions, options.leaving, options.runs)
        yield "Questions to a catalog of 2,000 backups", text
        text = every_question(folder, options.millions, options.runs, options.leaving)
        yield "Every kind of question, and how it grows", text

    def _growth(self) -> Iterator[tuple[str, str]]:
        options = self.options
        yield from growth(self._case_folder, options.days, options.weeks, options.runs)

    def _history(self) -> Iterator[tuple[str, str]]:
        yield "The next backup after many", history(self._case_folder, self.options.backups)

    def _snapshots(self) -> Iterator[tuple[str, str]]:
        with self._session() as session:
            text = snapshots(session, self._case_folder, self.options.runs, self.options.scale)
        yield "Snapshots", text

    def _log_restore(self) -> Iterator[tuple[str, str]]:
        with self._session() as session:
            text = restoring(session, self._case_folder, self.options.runs, self.options.scale)
        yield "Restore of a change feed", text


if __name__ == "__main__":
    raise SystemExit(main())
