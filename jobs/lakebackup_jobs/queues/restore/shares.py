"""Records the plan of an engine's restore as shares, which tasks work on.

To restore messages, each partition of the queues has a share. Its names are the fields of `Partition`, and
its files are in the order in which their messages were written, also if the topic id has changed since. A
partition without messages has an empty share, since a restore writes its watermark there too. To scan
messages, each share has about the same number of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.storage import Storage
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.plan_shares import (
    PlanShares,
    Share,
    dealt,
    runs_of,
    store_plan,
    weighed,
)
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all

# The stored bytes of the files that one scan task reads.
_SCAN_BYTES = 64 << 20
# The greatest number of shares that this process works on at once.
MOST_THREADS = 8


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


def partitions(shares: PlanShares, number: int) -> Iterator[tuple[Partition, Iterable[QueueFile]]]:
    """Yield each partition of a task with its files; these can be iterated again."""
    for files in shares.rows(number, QueueFile):
        yield Partition(*files.share.partition), files


def run_shares(job: Task, shares: PlanShares, spark: SparkSession | None) -> list[Any]:
    """Run a job over all shares and return its rows. Without `spark`, threads of this process run it."""
    return run_all(job, shares.numbers, spark, None if spark else MOST_THREADS)


def store_partitions(
    storage: Storage, file: PlanFile, folder: str, partitions: Iterable[Partition]
) -> PlanShares:
    """Record the plan of a restore below `folder`, with a share for each of `partitions`."""
    ranges = {
        share.partition: share
        for share in runs_of(file.batches(columns=["scope", "region"]), ["scope", "region"])
    }
    shares = []
    for partition in partitions:
        first, end, _ = ranges.get((partition.scope, partition.region), Share(0, 0))
        shares.append(Share(first, end, astuple(partition)))
    # Shares with files come first, as `names_in` expects.
    shares.sort(key=lambda share: share.first == share.end)
    return store_plan(storage, folder, file, shares, {})


def store_scan(storage: Storage, reader: CatalogReader, file: PlanFile, folder: str, link: int) -> PlanShares:
    """Record below `folder` the plan to scan those files of `file` whose backups come after `link`."""
    rows = reader.with_rows("selected", file).plan_file("queue_restore_shares", link=link)
    weights = rows.batches(columns=["destination", "path", "bytes"])
    copy = rows.copy_to(storage, f"{folder}plan/")
    shares = weighed(weights, _SCAN_BYTES, weight="bytes")
    return PlanShares(storage.uri, folder, copy, dealt(shares, len(shares)))


def names_in(roots: Roots, shares: PlanShares) -> HeaderNames | None:
    """Return the header names with which the messages of a restore were read, as its first file records them.

    None if the restore has no files, or if the file records no names. Raises Damaged.
    """
    # Shares with files come first. So if the first share has none, no share has any.
    for _, files in partitions(shares, 0) if shares.tasks else ():
        first = next(iter(files), None)
        return HeaderNames.read(open_verified(roots, first).metadata) if first else None
    return None
