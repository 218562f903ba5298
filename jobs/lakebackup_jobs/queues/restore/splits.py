"""The recorded plan of an engine's restore: a split for each partition of its queues, or of files to scan.

The first line of a partition's split names the target partition: one without messages gets its watermark too.
Its files follow in the order in which their messages were written, whatever their topic id.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.arrow_splits import WRITTEN as PATHS
from lakebackup_jobs.lifecycle.tasks.arrow_splits import ArrowSplitWriter
from lakebackup_jobs.lifecycle.tasks.splits import (
    PARTITION,
    WRITTEN,
    Rows,
    Splits,
    SplitWriter,
    read_index,
    write_index,
)
from lakebackup_jobs.lifecycle.tasks.task import run_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots
    from lakebackup.store.selection import Selection
    from lakebackup_jobs.lifecycle.tasks.task import Task

# One partition after another, in the order in which its messages were written.
_ORDER = ("scope", "region", "link", "start_position", "path")
# Stored bytes of files that one scan task reads.
_SCANNED = 64 << 20
# Most splits that run at once in this process.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class QueueFile(StoredFile):
    """A data file of an engine's queues; `link` is the place of its backup in the chain."""

    link: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a queue: its name in the backups, and its target."""

    scope: str
    epoch: str
    region: str
    target: str


@dataclass(frozen=True, slots=True)
class QueueSplits(Splits):
    """The stored splits of an engine's restore."""

    def partitions(self, number: int) -> Iterator[tuple[Partition, Iterable[QueueFile]]]:
        """Each partition of a task, with its files, which can be gone through again."""
        for rows in self.lines(number):
            yield Partition(**next(iter(rows))), Rows(rows.read, lambda row: QueueFile(**row), first=1)

    def scanned(self, number: int) -> Iterator[QueueFile]:
        """The files that a scan task reads."""
        import pyarrow as pa

        for path in self.tasks[number]:
            with pa.ipc.open_stream(open_storage(self.uri).get(path)) as stream:
                for batch in stream:
                    yield from (QueueFile(**row) for row in batch.to_pylist())


def run_splits(job: Task, splits: QueueSplits, spark: SparkSession | None) -> list[Any]:
    """Run a job over all splits: in Spark tasks, or without a session in a few threads of this process."""
    return run_all(job, splits.numbers, spark, None if spark else min(AT_ONCE, 4 * (os.cpu_count() or 2)))


def found(storage: Storage, folder: str) -> QueueSplits | None:
    """The splits below a folder; None when they were not all written."""
    tasks = read_index(storage, folder)
    return None if tasks is None else QueueSplits(storage.uri, folder, tasks)


def write_splits(
    storage: Storage, files: Selection, folder: str, partitions: Iterable[Partition]
) -> QueueSplits:
    """Write the splits of all `partitions` below `folder`, out of the chosen files."""
    heads = [asdict(place) for place in partitions]
    numbers = {(head["scope"], head["region"]): number for number, head in enumerate(heads)}
    writer = SplitWriter(storage.uri, folder, numbers, ("scope", "region"), heads)
    rows = files.map(
        writer,
        WRITTEN,
        "queue_restore_shares",
        spread=lambda rows: rows.repartition("scope", "region").sortWithinPartitions(*_ORDER),
        link=None,
    )
    # Partitions with files come before those without.
    numbered = dict.fromkeys(row["number"] for row in rows)
    for number in range(len(heads)):
        if number not in numbered:
            writer.write(number, ())
            numbered[number] = None
    return QueueSplits(storage.uri, folder, write_index(storage, folder, list(numbered)))


def write_scan_splits(storage: Storage, files: Selection, folder: str, link: int) -> QueueSplits:
    """Write splits, for a scan, of the chosen files after a link of the chain."""
    rows = files.map(
        ArrowSplitWriter(storage.uri, f"{folder}plan/", _SCANNED, weight="bytes"),
        PATHS,
        "queue_restore_shares",
        spread=lambda rows: rows.repartition(*PARTITION).sortWithinPartitions(*_ORDER),
        link=link,
    )
    return QueueSplits(storage.uri, folder, tuple((row["path"],) for row in rows))


def names_in(roots: Roots, splits: QueueSplits) -> HeaderNames | None:
    """The header names recorded in the first file; None without a file or a record.

    Raises Damaged.
    """
    # Partitions with files come before those without.
    for _, files in splits.partitions(0) if splits.tasks else ():
        first = next(iter(files), None)
        return HeaderNames.read(open_verified(roots, first).metadata) if first else None
    return None
