"""The plan of an engine's restore, written down: shares of each partition of its queues, or of files to scan.

A partition's share begins with a line that says where it goes, since one without a message gets its watermark
too. Then come its files in the order in which their messages were written, whichever topic id they are of.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.arrow_splits import WRITTEN as PATHS
from lakebackup_jobs.lifecycle.tasks.arrow_splits import ArrowShares
from lakebackup_jobs.lifecycle.tasks.splits import (
    PARTITION,
    WRITTEN,
    Shares,
    ShareWriter,
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
# So many stored bytes of files are scanned by one task.
_SCANNED = 64 << 20
# So many shares are carried out at once in this process.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class QueueFile(StoredFile):
    """A data file of an engine's queues; `link` is the place of its backup in the chain."""

    link: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a queue: what it is called in the backups, and where it goes."""

    scope: str
    epoch: str
    region: str
    target: str


@dataclass(frozen=True, slots=True)
class QueueShares(Shares):
    """Where the shares of an engine's restore lie; `tasks` as of Shares."""

    def partitions(self, number: int) -> Iterator[tuple[Partition, Iterator[QueueFile]]]:
        """Each partition of a task, with its files."""
        for rows in self.lines(number):
            yield Partition(**next(rows)), (QueueFile(**row) for row in rows)

    def scanned(self, number: int) -> Iterator[QueueFile]:
        """The files of a task, where shares are of files to scan."""
        import pyarrow as pa

        for path in self.tasks[number]:
            with pa.ipc.open_stream(open_storage(self.uri).get(path)) as stream:
                for batch in stream:
                    yield from (QueueFile(**row) for row in batch.to_pylist())


def run_shares(job: Task, shares: QueueShares, spark: SparkSession | None) -> list[Any]:
    """Carry out all shares in Spark's tasks, or without a session by a few threads of this process."""
    return run_all(job, shares.numbers, spark, None if spark else min(AT_ONCE, 4 * (os.cpu_count() or 2)))


def found(storage: Storage, folder: str) -> QueueShares | None:
    """The shares that lie below a folder; None when they were not all written."""
    tasks = read_index(storage, folder)
    return None if tasks is None else QueueShares(storage.uri, folder, tasks)


def deal(storage: Storage, files: Selection, folder: str, partitions: Iterable[Partition]) -> QueueShares:
    """Write the shares of all `partitions` below `folder`, out of the chosen files."""
    heads = [asdict(place) for place in partitions]
    numbers = {(head["scope"], head["region"]): number for number, head in enumerate(heads)}
    writer = ShareWriter(storage.uri, folder, numbers, ("scope", "region"), heads)
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
    return QueueShares(storage.uri, folder, write_index(storage, folder, list(numbered)))


def deal_scan(storage: Storage, files: Selection, folder: str, link: int) -> QueueShares:
    """Write shares of the chosen files behind a link of the chain, to be scanned."""
    rows = files.map(
        ArrowShares(storage.uri, f"{folder}plan/", _SCANNED, weight="bytes"),
        PATHS,
        "queue_restore_shares",
        spread=lambda rows: rows.repartition(*PARTITION).sortWithinPartitions(*_ORDER),
        link=link,
    )
    return QueueShares(storage.uri, folder, tuple((row["path"],) for row in rows))


def names_in(roots: Roots, shares: QueueShares) -> HeaderNames | None:
    """By which headers the first file's messages were understood; None: there is no file, or it does not say.

    Raises Damaged.
    """
    # Partitions with files come before those without.
    for _, files in shares.partitions(0) if shares.tasks else ():
        first = next(files, None)
        return HeaderNames.read(open_verified(roots, first).metadata) if first else None
    return None
