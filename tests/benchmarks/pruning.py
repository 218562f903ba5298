"""Planning a prune over a large catalog, beside plain Python over JSON manifests of the same rows.

The rows are made up: 10 topics of 100 partitions, 100 backups, of which the newest 40 are to be kept.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.benchmarks.measure import MeasuringError, of_command
from tests.benchmarks.ours import COMMAND
from tests.benchmarks.report import Sample, table

from lakebackup.rows.backups import Backup, DataFile, Scope
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row, json_line
from lakebackup.sql_engine.delta import append, commit, write_rows
from lakebackup.storage import open_storage
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.runtime.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPICS, PARTITIONS, BACKUPS, KEPT = 10, 100, 100, 40
OURS, PLAIN = "lakebackup prune", "json.loads and a dict"
EPOCH = "0123456789abcdef" * 2
SPAN_MS = 1_000_000


def backup_id(number: int) -> str:
    return f"20260101T{number // 60:02d}{number % 60:02d}00Z-{number:08x}"


def files_of(number: int, each: int) -> Iterator[DataFile]:
    """What backup `number` wrote: `each` files of each partition, an equal part of its time in each."""
    for topic in range(TOPICS):
        for partition in range(PARTITIONS):
            for part in range(each):
                seq = number * each + part
                least = number * SPAN_MS + part * (SPAN_MS // each)
                yield DataFile(
                    destination="d",
                    path=f"made/{EPOCH}/topics/t{topic}/partition={partition}/t{topic}+{partition}-{seq:010d}.data",
                    backup_id=backup_id(number),
                    added_in=number + 1,
                    source="made",
                    scope=f"t{topic}",
                    epoch=EPOCH,
                    region=str(partition),
                    format="kafka-avro-2",
                    codec="zstandard",
                    bytes=1_000_000 + seq,
                    raw_bytes=3_000_000,
                    sha256="00" * 32,
                    entries=1000,
                    min_ts=least,
                    max_ts=least + SPAN_MS // each - 1,
                    start_position=seq * 1000,
                    end_position=seq * 1000 + 1000,
                )


def make(folder: Path, each: int) -> None:
    """The catalog, and the same rows as a JSON object a line, a file for each backup and topic."""
    session = spark_session()
    writer = CatalogWriter.open(session, str(folder))
    writer.migrate()
    session.stop()
    storage = open_storage(writer.catalog_uri)
    for number in range(BACKUPS):
        rows = list(files_of(number, each))
        (folder / "manifests").mkdir(exist_ok=True)
        with (folder / "manifests" / f"{number:06d}.jsonl").open("w", encoding="utf-8") as lines:
            lines.writelines(f"{json_line(row)}\n" for row in rows)
        made = pa.Table.from_pylist([as_row(row) for row in rows], schema=ARROW_SCHEMAS["files"])
        commit(storage, "files", [write_rows(storage, "files", made)], f"files-{number}")
    settings = json.dumps({"cleanup.policy": "delete", "retention.ms": str(KEPT * SPAN_MS)})
    ids = [backup_id(number) for number in range(BACKUPS)]
    append(storage, "backups", [_backup(number, each) for number in range(BACKUPS)], "backups")
    scopes = [
        Scope(
            backup_id=name, source="made", scope=f"t{topic}", epoch=EPOCH, regions=PARTITIONS,
            settings=settings, replication=1,
        )
        for name in ids
        for topic in range(TOPICS)
    ]  # fmt: skip
    append(storage, "scopes", scopes, "scopes")


def _backup(number: int, each: int) -> Backup:
    count = TOPICS * PARTITIONS * each
    return Backup(
        backup_id=backup_id(number), number=number + 1, source="made", destination="d",
        kind="differential" if number else "full", level=min(number, 1),
        parent=backup_id(number - 1) if number else None, base=backup_id(0), chain_position=number,
        place=number + 1, parent_place=number or None,
        start_ts=None, end_ts=(number + 1) * SPAN_MS, started_at=0, finished_at=0, files=count,
        bytes=0, entries=0, digest="", isolation="read_committed", codec="zstandard", created_by="",
        tool="",
    )  # fmt: skip


def pruning(folder: Path, scale: float, runs: int) -> str:
    """Markdown: the time to tell what can go of a million files (times `scale`)."""
    each = max(1, round(10 * scale))
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    make(folder, each)
    commands = {
        OURS: [*COMMAND, "prune", "--from", str(folder), "--source", "made", "--json"],
        PLAIN: [
            sys.executable, "-m", "tests.benchmarks.pruning", str(folder), str((BACKUPS - KEPT) * SPAN_MS),
        ],
    }  # fmt: skip
    samples: dict[str, list[Sample | None]] = {name: [] for name in commands}
    for number in range(-1, runs):  # the first is not counted
        for name, command in commands.items():
            cost = of_command(command, log)
            if number >= 0:
                samples[name].append(Sample(cost, 0, {}))
            print(f"  round {number + 1}, {name}: {cost.seconds:.2f} s", file=sys.stderr)
            said = [json.loads(line) for line in log.read_text("utf-8").splitlines() if '"files"' in line]
            wanted = (BACKUPS - KEPT) * TOPICS * PARTITIONS * each
            if [found["files"] for found in said] != [wanted]:
                raise MeasuringError(f"{name} finds {said}, not {wanted}")
    shutil.rmtree(folder)
    return table(samples, OURS)


def by_hand(folder: Path, cutoff_ts: int) -> dict[str, int]:
    """The same question by plain Python: what lies in front of the first young file of each partition."""
    rows = []
    for manifest in sorted((folder / "manifests").glob("*.jsonl")):
        with manifest.open(encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    young: dict[tuple[str, str, str], int] = {}
    ends: dict[tuple[str, str, str], int] = {}
    for row in rows:
        region = row["scope"], row["epoch"], row["region"]
        ends[region] = max(ends.get(region, 0), row["end_position"])
        if row["max_ts"] >= cutoff_ts:
            young[region] = min(young.get(region, row["start_position"]), row["start_position"])
    gone = []
    for row in rows:
        region = row["scope"], row["epoch"], row["region"]
        if row["end_position"] <= young.get(region, ends[region]):
            gone.append(row)
    return {"files": len(gone), "bytes": sum(row["bytes"] for row in gone)}


if __name__ == "__main__":
    from pathlib import Path

    # Where the command under measure writes too: standard output goes to the same log.
    print(json.dumps(by_hand(Path(sys.argv[1]), int(sys.argv[2]))), file=sys.stderr)
