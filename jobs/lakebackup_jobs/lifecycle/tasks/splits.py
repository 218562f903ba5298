"""The recorded plan of a restore: one split for each partition, which lists its files. The task that restores
the partition reads it.

So a restore that is resumed still restores the files that were planned, whatever newer backups there are. The
driver never holds the list of files: its rows stream from DuckDB to storage, or Spark's tasks write them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lakebackup.errors import NotFound
from lakebackup.storage import open_storage, working
from lakebackup_jobs.kafka.format.stored import StoredFile
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.storage import Storage

#: The columns that a SplitWriter returns.
WRITTEN = "number BIGINT"
# A task takes one split; when there are more splits than this, a task takes several.
MOST_TASKS = 200
_INDEX = "plan/tasks.json"
# What else a resumed run needs to know from the run that wrote the splits.
_RESUME = "plan/resume.json"
T = TypeVar("T")
#: The columns that identify a partition of a topic.
PARTITION = ("scope", "epoch", "region")


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """The rows of a split, without its `first` rows, each converted by `convert`. Each iteration reads them
    again."""

    read: Callable[[], Iterator[dict[str, Any]]]
    convert: Callable[[dict[str, Any]], T]
    first: int = 0

    def __iter__(self) -> Iterator[T]:
        return map(self.convert, islice(self.read(), self.first, None))


@dataclass(frozen=True, slots=True)
class Splits:
    """The stored splits of a restore. `tasks[i]` holds the paths of the splits that task i restores."""

    uri: str
    folder: str
    tasks: tuple[tuple[str, ...], ...]

    @property
    def numbers(self) -> range:
        """The numbers of the tasks."""
        return range(len(self.tasks))

    def partition_files(self, number: int) -> Iterator[tuple[StoredFile, Iterable[StoredFile]]]:
        """For each partition of a task: its first file, and all of its files, which can be iterated
        repeatedly."""
        for rows in self.lines(number):
            files = Rows(rows.read, lambda row: StoredFile(**row))
            yield next(iter(files)), files

    def lines(self, number: int) -> Iterator[Rows[dict[str, Any]]]:
        """The rows of each split of a task."""
        storage = open_storage(self.uri)
        for path in self.tasks[number]:
            yield Rows(partial(read_lines, storage, path), lambda row: row)

    def task_progress(self) -> TaskProgress:
        """Where the tasks report their progress."""
        return TaskProgress(open_storage(self.uri), self.folder)

    def clear(self) -> None:
        """Delete the splits, the index first. Call it when the restore is complete."""
        storage = open_storage(self.uri)
        working.retire(storage, f"{self.folder}{_INDEX}")
        clear(storage, self.folder)


@dataclass(frozen=True, slots=True)
class SplitWriter:
    """Writes one split for each partition, from rows grouped by partition, and returns its number. Runs in
    this process or in a Spark task.

    `numbers` maps the values of the columns `key` to a split's number. `heads[number]` is the first row of
    the split.
    """

    uri: str
    folder: str
    numbers: Mapping[Any, int]
    key: tuple[str, ...] = PARTITION
    heads: Sequence[Mapping[str, Any]] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for partition, partition_rows in groupby(rows, key=itemgetter(*self.key)):
            number = self.numbers[partition]
            self.write(number, partition_rows)
            yield pa.RecordBatch.from_pydict({"number": pa.array([number], pa.int64())})

    def write(self, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write one split."""
        head = self.heads[number : number + 1]
        write_lines(open_storage(self.uri), split_path(self.folder, number), chain(head, rows))


def write_splits(storage: Storage, plan: RestorePlan, folder: str) -> Splits:
    """Write the splits of a planned restore below `folder`, unless an interrupted run has written them.

    Raises EnvironmentProblem (storage).
    """
    if (tasks := read_index(storage, folder)) is not None:
        return Splits(storage.uri, folder, tasks)
    parts = sorted((p for t in plan.topics for p in t.parts), key=lambda p: -p.bytes)
    numbers = {p.place: number for number, p in enumerate(parts)}
    plan.chosen.map(
        SplitWriter(storage.uri, folder, numbers),
        WRITTEN,
        "selected_files",
        spread=lambda rows: rows.repartition(*PARTITION).sortWithinPartitions(
            *PARTITION, "start_position", "path"
        ),
    )
    storage.put(f"{folder}{_RESUME}", plan.to_resume().encode())
    # The largest partitions start first.
    return Splits(storage.uri, folder, write_index(storage, folder, range(len(parts))))


def resumed_plan(storage: Storage, folder: str, plan: RestorePlan) -> RestorePlan | None:
    """The plan of the interrupted run whose splits are below `folder`; None if it did not write them all.
    `plan` is that of the run that resumes it."""
    if read_index(storage, folder) is None:
        return None
    try:
        return plan.resumed(storage.get(f"{folder}{_RESUME}").decode())
    except NotFound:
        return plan.resumed(None)


def regions_of(storage: Storage, folder: str) -> list[tuple[str, str, str]] | None:
    """The partitions (topic, epoch, number) with a split below `folder`; None if there is no plan. A complete
    restore deletes its plan."""
    tasks = read_index(storage, folder)
    if tasks is None:
        return None
    try:
        first_rows = [_first_row(storage, path) for path in chain.from_iterable(tasks)]
    except NotFound:
        return None
    return [(row["scope"], row["epoch"], row["region"]) for row in first_rows]


def _first_row(storage: Storage, path: str) -> dict[str, Any]:
    with storage.open(path) as stream:
        row: dict[str, Any] = json.loads(next(stream))
    return row


def split_path(folder: str, number: int) -> str:
    """The path of a split, below the folder of a restore or backup."""
    return f"{folder}plan/{number:06d}.jsonl"


def batched(items: Iterable[T], *limits: tuple[Callable[[T], int], int]) -> Iterator[list[T]]:
    """Group items into lists. Each limit is a function for an item's weight, and the sum of weights at which
    a list is full."""
    batch: list[T] = []
    sums = [0 for _ in limits]
    for item in items:
        batch.append(item)
        sums = [total + weight(item) for total, (weight, _) in zip(sums, limits, strict=True)]
        if any(total >= limit for total, (_, limit) in zip(sums, limits, strict=True)):
            yield batch
            batch, sums = [], [0 for _ in limits]
    if batch:
        yield batch


def write_lines(storage: Storage, path: str, rows: Iterable[Any]) -> None:
    """Write rows as JSON lines. Replaces an older object."""
    with storage.writer() as writer:
        for row in rows:
            writer.write(f"{json.dumps(row)}\n".encode())
        writer.commit(path, if_absent=False)


def read_lines(storage: Storage, path: str) -> Iterator[Any]:
    """The rows that `write_lines` wrote. Raises NotFound."""
    with storage.open(path) as stream:
        yield from map(json.loads, stream)


def clear(storage: Storage, folder: str) -> None:
    """Delete the splits below `folder`."""
    index = f"{folder}{_INDEX}"
    working.delete(storage, [entry.path for entry in storage.list(f"{folder}plan/") if entry.path != index])
    working.retire(storage, index)


def write_index(storage: Storage, folder: str, numbers: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Assign splits to tasks round-robin, and write the index. Returns the paths of each task's splits. Call
    it when all splits are written."""
    count = min(len(numbers), MOST_TASKS)
    tasks = [tuple(split_path(folder, number) for number in numbers[task::count]) for task in range(count)]
    storage.put(f"{folder}{_INDEX}", json.dumps(tasks).encode())
    return tuple(tasks)


def read_index(storage: Storage, folder: str) -> tuple[tuple[str, ...], ...] | None:
    """The paths of each task's splits; None if they were not all written."""
    try:
        return tuple(tuple(paths) for paths in json.loads(working.get(storage, f"{folder}{_INDEX}")))
    except NotFound:
        return None
