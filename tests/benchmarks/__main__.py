"""`python -m tests.benchmarks [CASE...]`: prints Markdown on standard output, what it does on standard error.

PEER_KCAT and PEER_KAFKA_BACKUP name other tools' executables. Takes about half an hour and 8 GB of disk.
The figures are worth something only on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import machine
from tests.benchmarks.catalog import catalog
from tests.benchmarks.chains import chains
from tests.benchmarks.changelog_capture import capturing
from tests.benchmarks.changelog_restore import restoring
from tests.benchmarks.changelog_rpo import rpo
from tests.benchmarks.compaction import BACKUPS, compaction
from tests.benchmarks.data import DataSet, fill
from tests.benchmarks.memory import driver_memory
from tests.benchmarks.merging import MERGED, merging
from tests.benchmarks.ours import Session
from tests.benchmarks.pruning import pruning
from tests.benchmarks.queue_writers import writing
from tests.benchmarks.queues import Ratio
from tests.benchmarks.snapshots import snapshots
from tests.benchmarks.topics import Bench

from lakebackup_jobs.demo.broker import Broker

SETS = {"small": (2_000_000, 200), "large": (100_000, 10_240)}
BROKER = (*SETS, "compact", "merge", "memory", "capture", "rpo", "queue-ratio", "queue-writers")
CASES = (*BROKER, "prune", "chains", "catalog", "snapshots", "log-restore")


def main(argv: list[str] | None = None) -> int:
    """Runs the chosen cases."""
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
        "--gigabytes",
        type=float,
        default=4.0,
        help="size of an engine's store beside queues (default: 4)",
    )
    parser.add_argument("--keep", type=Path, help="make the catalogs here and leave them, to use them again")
    options = parser.parse_args(argv)
    cases = options.cases or list(CASES)
    if unknown := set(cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="lakebackup-bench-") as name:
        folder = Path(name)
        print(machine.describe(folder), flush=True)
        if set(BROKER) & set(cases):
            with Broker(folder / "broker") as broker:
                _with_broker(broker, folder, cases, options)
        if "prune" in cases:
            print("planning a prune", file=sys.stderr)
            found = pruning(folder / "prune", options.scale, options.runs)
            print(f"\n### Planning a prune over a million files\n\n{found}", flush=True)
        if "chains" in cases:
            print("chains of many levels", file=sys.stderr)
            count = 1000 * options.thousand_backups
            found = chains(options.keep or folder / "chains", count, options.runs)
            print(f"\n### Chains of {count:,} backups\n\n{found}", flush=True)
        if "catalog" in cases:
            print("questions to a large catalog", file=sys.stderr)
            found = catalog(
                options.keep or folder / "catalog", options.millions, options.leaving, options.runs
            )
            print(f"\n### Questions to a catalog of 2,000 backups\n\n{found}", flush=True)
        if "snapshots" in cases:
            print("files of snapshots", file=sys.stderr)
            with Session(folder / "snapshots.log") as session:
                found = snapshots(session, folder / "snapshots", options.runs, options.scale)
            print(f"\n### Snapshots\n\n{found}", flush=True)
        if "log-restore" in cases:
            print("restores of a change feed", file=sys.stderr)
            with Session(folder / "log-restore.log") as session:
                found = restoring(session, folder / "log-restore", options.runs, options.scale)
            print(f"\n### Restore of a change feed\n\n{found}", flush=True)
    return 0


def _with_broker(broker: Broker, folder: Path, cases: list[str], options: argparse.Namespace) -> None:
    for case in [case for case in SETS if case in cases]:
        records, value_bytes = SETS[case]
        data = DataSet(case, round(records * options.scale), value_bytes)
        print(f"{data}: producing", file=sys.stderr)
        fill(broker.bootstrap, data)
        with Session(folder / f"{case}.log") as session:
            bench = Bench(broker, data, session, folder / case, options.runs, not options.no_check)
            print(f"\n### Backup of {data}\n\n{bench.backup()}", flush=True)
            bench.check = not options.no_check
            print(f"\n### Restore of {data}\n\n{bench.restore()}", flush=True)
    if "compact" in cases:
        data = DataSet("compact", round(2_000_000 * options.scale), 200)
        print(f"{data}: compaction", file=sys.stderr)
        with Session(folder / "compact.log") as session:
            found = compaction(broker, data, session, folder / "compact", options.runs)
        print(f"\n### Compaction of {BACKUPS} backups of {data}\n\n{found}", flush=True)
    if "merge" in cases:
        for name, (records, value_bytes) in SETS.items():
            data = DataSet(f"merge-{name}", round(records * options.scale), value_bytes)
            print(f"{data}: merge", file=sys.stderr)
            with Session(folder / "merge.log") as session:
                found = merging(broker, data, session, folder / "merge", options.runs)
            print(f"\n### Merge of {MERGED} backups of {data}\n\n{found}", flush=True)
    if "capture" in cases:
        print("change feeds: capture", file=sys.stderr)
        found = capturing(broker, folder, options.runs, options.scale)
        print(f"\n### Capture of a change feed, one task\n\n{found}", flush=True)
    if "rpo" in cases:
        print("change feeds: how far behind a task is", file=sys.stderr)
        found = rpo(broker, folder / "rpo", options.scale)
        print(f"\n### A log task under load, flushes of 10 s\n\n{found}", flush=True)
    store = round(options.gigabytes * options.scale * 1e9)
    if "queue-ratio" in cases:
        print("queues: full and differential", file=sys.stderr)
        with Session(folder / "queues.log") as session:
            found = Ratio(broker, session, folder / "queues", store).rounds(options.runs)
        print(f"\n### Queues of an engine: full and differential\n\n{found}", flush=True)
    if "queue-writers" in cases:
        print("queues: writers beside backups", file=sys.stderr)
        with Session(folder / "writers.log") as session:
            found = writing(broker, session, folder / "writers", store // 4, options.runs)
        print(f"\n### Writers at full speed beside backups of their queues\n\n{found}", flush=True)
    if "memory" in cases:
        print(
            f"\n### Memory of the driver\n\n{driver_memory(broker, folder, options.scale)}",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
