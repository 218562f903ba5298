"""The plan of an engine's restore, written down: shares of each partition of its queues, or of files to scan.

A partition's share begins with a line that says where it goes, since one without a message gets its watermark
too. Then come its files in the order in which their messages were written, whichever topic id they are of.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.splits import (
    PARTITION,
    WRITTEN,
    Shares,
    ShareWriter,
    read_index,
    write_index,
    write_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots
    from lakebackup.store.selection import Selection

# One partition after another, in the order in which its messages were written.
_ORDER = ("scope", "region", "link", "start_position", "path")
# So many stored bytes of files are scanned by one task.
_SCANNED = 256 << 20


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

    def files(self, number: int) -> Iterator[QueueFile]:
        """The files of a task, where shares are of files alone."""
        for rows in self.lines(number):
            yield from (QueueFile(**row) for row in rows)


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


@dataclass(frozen=True, slots=True)
class ScanShareWriter:
    """Over files that have those of a partition one after another: writes shares of each partition's, about
    _SCANNED bytes each, and returns their paths. In this process or in a task of Spark."""

    uri: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage, size, number = open_storage(self.uri), 0, 0

        def weigh(row: Mapping[str, Any]) -> tuple[Any, ...]:
            nonlocal size, number
            number += bool(size) and size + row["bytes"] > _SCANNED
            size = row["bytes"] if size + row["bytes"] > _SCANNED else size + row["bytes"]
            return *(row[name] for name in PARTITION), number

        for _, rows in groupby(chain.from_iterable(batch.to_pylist() for batch in batches), key=weigh):
            first = next(rows)
            # By its first file, so that a task that is run again writes the same.
            name = hashlib.sha256(f"{first['destination']} {first['path']}".encode()).hexdigest()[:24]
            path = f"{self.folder}plan/{name}.jsonl"
            write_lines(storage, path, chain([first], rows))  # noqa: B031
            yield pa.RecordBatch.from_pydict({"path": [path]})


def deal_scan(storage: Storage, files: Selection, folder: str, link: int) -> QueueShares:
    """Write shares of the chosen files behind a link of the chain, to be looked at."""
    rows = files.map(
        ScanShareWriter(storage.uri, folder),
        "path STRING",
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
