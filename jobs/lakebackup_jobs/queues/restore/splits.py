"""The recorded plan of an engine's restore: a split for each partition of its queues, or of files to scan.

The first line of a partition's split names the target partition, since a partition without messages gets its
watermark too. Its files follow in the order in which their messages were written, whatever their topic id.
"""

from __future__ import annotations

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

# Partition by partition, each in the order in which its messages were written.
_ORDER = ("scope", "region", "link", "start_position", "path")
# The stored bytes of the files that one scan task reads.
_SCAN_BYTES = 64 << 20
# The greatest number of splits that this process runs at once.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class QueueFile(StoredFile):
    """A data file of an engine's queues; `link` is the position of its backup in the chain."""

    link: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a queue: its topic, topic id and number in the backups, and its target topic."""

    scope: str
    epoch: str
    region: str
    target: str


@dataclass(frozen=True, slots=True)
class QueueSplits(Splits):
    """The stored splits of an engine's restore."""

    def partitions(self, number: int) -> Iterator[tuple[Partition, Iterable[QueueFile]]]:
        """Yield each partition of a task with its files; these can be iterated again."""
        for rows in self.lines(number):
            yield Partition(**next(iter(rows))), Rows(rows.read, lambda row: QueueFile(**row), first=1)

    def scanned(self, number: int) -> Iterator[QueueFile]:
        """Yield the files that a scan task reads."""
        import pyarrow as pa

        for path in self.tasks[number]:
            with pa.ipc.open_stream(open_storage(self.uri).get(path)) as stream:
                for batch in stream:
                    yield from (QueueFile(**row) for row in batch.to_pylist())


def run_splits(job: Task, splits: QueueSplits, spark: SparkSession | None) -> list[Any]:
    """Run a job over all splits and return its rows; `spark` None: it runs in threads of this process."""
    return run_all(job, splits.numbers, spark, None if spark else AT_ONCE)


def found(storage: Storage, folder: str) -> QueueSplits | None:
    """Return the splits below a folder; None when not all of them were written."""
    tasks = read_index(storage, folder)
    return None if tasks is None else QueueSplits(storage.uri, folder, tasks)


def write_splits(
    storage: Storage, files: Selection, folder: str, partitions: Iterable[Partition]
) -> QueueSplits:
    """Write a split of the selected files for each of `partitions`, below `folder`."""
    targets = [asdict(partition) for partition in partitions]
    numbers = {(target["scope"], target["region"]): number for number, target in enumerate(targets)}
    writer = SplitWriter(storage.uri, folder, numbers, ("scope", "region"), targets)
    rows = files.map(
        writer,
        WRITTEN,
        "queue_restore_shares",
        spread=lambda rows: rows.repartition("scope", "region").sortWithinPartitions(*_ORDER),
        link=None,
    )
    # Partitions with files come before those without.
    split_numbers = dict.fromkeys(row["number"] for row in rows)
    for number in range(len(targets)):
        if number not in split_numbers:
            writer.write(number, ())
            split_numbers[number] = None
    return QueueSplits(storage.uri, folder, write_index(storage, folder, list(split_numbers)))


def write_scan_splits(storage: Storage, files: Selection, folder: str, link: int) -> QueueSplits:
    """Write splits for a scan of the selected files, of the backups after a link of the chain."""
    rows = files.map(
        ArrowSplitWriter(storage.uri, f"{folder}plan/", _SCAN_BYTES, weight="bytes"),
        PATHS,
        "queue_restore_shares",
        spread=lambda rows: rows.repartition(*PARTITION).sortWithinPartitions(*_ORDER),
        link=link,
    )
    return QueueSplits(storage.uri, folder, tuple((row["path"],) for row in rows))


def names_in(roots: Roots, splits: QueueSplits) -> HeaderNames | None:
    """Return the header names that the first file records; None if it records none. Raises Damaged."""
    # Partitions with files come before those without.
    for _, files in splits.partitions(0) if splits.tasks else ():
        first = next(iter(files), None)
        return HeaderNames.read(open_verified(roots, first).metadata) if first else None
    return None
