"""The plan of an engine's restore, written down: shares of each partition of its queues, or of files to scan.

A partition's share begins with a line that says where it goes, since one without a message gets its watermark
too. Then come its files in the order in which their messages were written, whichever topic id they are of.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.kafka.format.stored_file import StoredFile
from lakebackup_jobs.lifecycle.splits import MOST_TASKS, Shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.roots import Roots

_INDEX = "plan/tasks.json"
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

    def share(self, number: int) -> Iterator[tuple[Partition, Iterator[QueueFile]]]:
        """Each partition of a task, with its files."""
        storage = open_storage(self.uri)
        for path in self.tasks[number]:
            with storage.open(path) as stream:
                first = Partition(**json.loads(next(stream)))
                yield first, (QueueFile(**json.loads(line)) for line in stream)

    def files(self, number: int) -> Iterator[QueueFile]:
        """The files of a task, where shares are of files alone."""
        storage = open_storage(self.uri)
        for path in self.tasks[number]:
            with storage.open(path) as stream:
                for line in stream:
                    yield QueueFile(**json.loads(line))


def found(storage: Storage, folder: str) -> QueueShares | None:
    """The shares that lie below a folder; None when they were not all written."""
    try:
        tasks = json.loads(storage.get(f"{folder}{_INDEX}"))
    except NotFound:
        return None
    return QueueShares(storage.uri, folder, tuple(tuple(paths) for paths in tasks))


def deal(
    storage: Storage, reader: CatalogReader, folder: str, partitions: Iterable[Partition]
) -> QueueShares:
    """Write the shares of all `partitions` below `folder`. `reader` has the relation `selected`."""
    rest = {(place.scope, place.region): place for place in partitions}
    tasks: list[list[str]] = [[] for _ in range(min(len(rest), MOST_TASKS))]
    number = 0

    def put(place: Partition, rows: Iterable[Mapping[str, Any]]) -> None:
        nonlocal number
        path = f"{folder}plan/{number:06d}.jsonl"
        _write(storage, path, chain([asdict(place)], rows))
        tasks[number % len(tasks)].append(path)
        number += 1

    everything = _rows(reader, "queue_restore_shares", link=None)
    for key, rows in groupby(everything, key=itemgetter("scope", "region")):
        put(rest.pop(key), rows)
    for place in rest.values():
        put(place, ())
    return _indexed(storage, folder, tasks)


def deal_scan(storage: Storage, reader: CatalogReader, folder: str, link: int) -> QueueShares:
    """Write shares of the files behind a link of the chain, to be looked at; `reader` has `selected`."""
    tasks: list[list[str]] = []
    size = number = 0

    def weigh(row: Mapping[str, Any]) -> tuple[Any, ...]:
        nonlocal size, number
        number += bool(size) and size + row["bytes"] > _SCANNED
        size = row["bytes"] if size + row["bytes"] > _SCANNED else size + row["bytes"]
        return row["scope"], row["epoch"], row["region"], number

    for _, rows in groupby(_rows(reader, "queue_restore_shares", link=link), key=weigh):
        path = f"{folder}plan/{len(tasks):06d}.jsonl"
        _write(storage, path, rows)
        tasks.append([path])
    return _indexed(storage, folder, tasks)


def names_in(roots: Roots, shares: QueueShares) -> HeaderNames | None:
    """By which headers the first file's messages were understood; None: there is no file, or it does not say.

    Raises Damaged.
    """
    # Partitions with files come before those without.
    for _, files in shares.share(0) if shares.tasks else ():
        first = next(files, None)
        return HeaderNames.read(open_verified(roots, first).metadata) if first else None
    return None


def _write(storage: Storage, path: str, rows: Iterable[Mapping[str, Any]]) -> None:
    with storage.writer() as writer:
        for row in rows:
            writer.write(f"{json.dumps(row)}\n".encode())
        writer.commit(path, if_absent=False)


def _indexed(storage: Storage, folder: str, tasks: list[list[str]]) -> QueueShares:
    storage.put(f"{folder}{_INDEX}", json.dumps(tasks).encode())
    return QueueShares(storage.uri, folder, tuple(tuple(paths) for paths in tasks))


def _rows(reader: CatalogReader, name: str, **parameters: Any) -> Iterator[dict[str, Any]]:
    for batch in reader.query(name, **parameters):
        yield from batch.to_pylist()
