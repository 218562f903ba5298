"""The recorded plan of a restore: one share for each partition, read by the task that restores it.

The files that were planned are thereby the files that are restored, also when the restore is interrupted
and resumed after another backup was taken. No list of them is held: rows stream from DuckDB to storage, or
Spark's tasks write them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from lakebackup.errors import NotFound
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.stored import StoredFile
from lakebackup_jobs.lifecycle.tasks.progress import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.storage import Storage

#: Columns of what a ShareWriter returns.
WRITTEN = "number BIGINT"
# A task takes one partition, chunk or part of the work; where there are more than this, they share tasks.
MOST_TASKS = 200
_INDEX = "plan/tasks.json"
T = TypeVar("T")
#: The columns that identify a partition of a topic.
PARTITION = ("scope", "epoch", "region")


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the shares of a restore lie: `tasks[i]` are the paths of those that Spark task i restores."""

    uri: str
    folder: str
    tasks: tuple[tuple[str, ...], ...]

    @property
    def numbers(self) -> range:
        """The numbers of the tasks."""
        return range(len(self.tasks))

    def share(self, number: int) -> Iterator[tuple[StoredFile, Iterator[StoredFile]]]:
        """Of each partition of a task its first file, and all of them."""
        for lines in self.lines(number):
            files = (StoredFile(**row) for row in lines)
            first = next(files)
            yield first, chain([first], files)

    def lines(self, number: int) -> Iterator[Iterator[dict[str, Any]]]:
        """The rows of each share of a task."""
        storage = open_storage(self.uri)
        for path in self.tasks[number]:
            yield read_lines(storage, path)

    def board(self) -> TaskBoard:
        """Where the tasks report their progress."""
        return TaskBoard(open_storage(self.uri), self.folder)

    def clear(self) -> None:
        """Delete the shares, the index first: the restore is done."""
        storage = open_storage(self.uri)
        storage.delete(f"{self.folder}{_INDEX}")
        clear(storage, self.folder)


@dataclass(frozen=True, slots=True)
class ShareWriter:
    """Over rows that have those of a partition one after another: writes each partition's share, and returns
    its number. In this process or in a task of Spark.

    `numbers`: by the values of the columns `key`. `heads`: by number, what is in front of a share.
    """

    uri: str
    folder: str
    numbers: Mapping[Any, int]
    key: tuple[str, ...] = PARTITION
    heads: Sequence[Mapping[str, Any]] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for partition, some in groupby(rows, key=itemgetter(*self.key)):
            number = self.numbers[partition]
            self.write(number, some)
            yield pa.RecordBatch.from_pydict({"number": pa.array([number], pa.int64())})

    def write(self, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Put one share."""
        head = self.heads[number : number + 1]
        write_lines(open_storage(self.uri), share_path(self.folder, number), chain(head, rows))


def deal(storage: Storage, plan: RestorePlan, folder: str) -> Shares:
    """Write the shares of a planned restore below `folder`, or find those of the run that was interrupted.

    Raises EnvironmentProblem (storage).
    """
    if (tasks := read_index(storage, folder)) is not None:
        return Shares(storage.uri, folder, tasks)
    parts = sorted((p for t in plan.topics for p in t.parts), key=lambda p: -p.bytes)
    numbers = {p.place: number for number, p in enumerate(parts)}
    plan.chosen.map(
        ShareWriter(storage.uri, folder, numbers),
        WRITTEN,
        "selected_files",
        spread=lambda rows: rows.repartition(*PARTITION).sortWithinPartitions(
            *PARTITION, "start_position", "path"
        ),
    )
    # The largest start first and the rest fill up behind them.
    return Shares(storage.uri, folder, write_index(storage, folder, range(len(parts))))


def regions_of(storage: Storage, folder: str) -> list[tuple[str, str, str]] | None:
    """The partitions (topic, epoch, number) whose shares lie below `folder`; None when there is no plan."""
    tasks = read_index(storage, folder)
    if tasks is None:
        return None
    firsts = (_first(storage, path) for path in chain.from_iterable(tasks))
    return [(row["scope"], row["epoch"], row["region"]) for row in firsts]


def _first(storage: Storage, path: str) -> dict[str, Any]:
    with storage.open(path) as stream:
        found: dict[str, Any] = json.loads(next(stream))
    return found


def share_path(folder: str, number: int) -> str:
    """Where the share of a number is, below the folder of a restore or backup."""
    return f"{folder}plan/{number:06d}.jsonl"


def batched(items: Iterable[T], *limits: tuple[Callable[[T], int], int]) -> Iterator[list[T]]:
    """Items in lists. A limit is what to add up, and the sum at which a list is full."""
    held: list[T] = []
    sums = [0 for _ in limits]
    for item in items:
        held.append(item)
        sums = [sofar + weight(item) for sofar, (weight, _) in zip(sums, limits, strict=True)]
        if any(sofar >= most for sofar, (_, most) in zip(sums, limits, strict=True)):
            yield held
            held, sums = [], [0 for _ in limits]
    if held:
        yield held


def write_lines(storage: Storage, path: str, rows: Iterable[Any]) -> None:
    """Put rows as JSON lines, in place of an older object."""
    with storage.writer() as writer:
        for row in rows:
            writer.write(f"{json.dumps(row)}\n".encode())
        writer.commit(path, if_absent=False)


def read_lines(storage: Storage, path: str) -> Iterator[Any]:
    """The rows that `write_lines` put. Raises NotFound."""
    with storage.open(path) as stream:
        yield from map(json.loads, stream)


def clear(storage: Storage, folder: str) -> None:
    """Delete the shares below `folder`."""
    for found in list(storage.list(f"{folder}plan/")):
        storage.delete(found.path)


def write_index(storage: Storage, folder: str, numbers: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Assign shares to tasks, the first ones first; the index is written when all shares are there."""
    count = min(len(numbers), MOST_TASKS)
    tasks = [tuple(share_path(folder, number) for number in numbers[task::count]) for task in range(count)]
    storage.put(f"{folder}{_INDEX}", json.dumps(tasks).encode())
    return tuple(tasks)


def read_index(storage: Storage, folder: str) -> tuple[tuple[str, ...], ...] | None:
    """The paths of each task's shares; None when they were not all written."""
    try:
        return tuple(tuple(paths) for paths in json.loads(storage.get(f"{folder}{_INDEX}")))
    except NotFound:
        return None
