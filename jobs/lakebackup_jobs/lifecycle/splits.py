"""The plan of a restore, written down: one share for each partition, read by the task that restores it.

The files that were planned are thereby the files that are restored, also when the restore is cut off and
goes on after another backup was taken. No list of them is held: rows stream from DuckDB to storage, or
Spark's tasks write them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.stored_file import StoredFile
from lakebackup_jobs.lifecycle.task_progress import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.storage import Storage

# A task takes one partition, chunk or part of the work; where there are more than this, they share tasks.
MOST_TASKS = 200
_INDEX = "plan/tasks.json"
_PARTITION = ("scope", "epoch", "region")


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the shares of a restore lie: `tasks[i]` are the paths of those that Spark task i restores."""

    uri: str
    folder: str
    tasks: tuple[tuple[str, ...], ...]

    def frame(self, spark: SparkSession) -> DataFrame:
        """The numbers of the tasks, each in a Spark partition of its own."""
        return spark.range(0, len(self.tasks), 1, max(1, len(self.tasks)))

    def partitions(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[StoredFile, Iterator[StoredFile]]]:
        """Inside a task, for its batches of numbers: the first file of each partition, and all of them."""
        storage = open_storage(self.uri)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in self.tasks[number]:
                    files = _read(storage, path)
                    first = next(files)
                    yield first, chain([first], files)

    def board(self) -> TaskBoard:
        """Where the tasks tell how far they are."""
        return TaskBoard(open_storage(self.uri), self.folder)

    def clear(self) -> None:
        """Take the shares away, the index first: the restore is done."""
        storage = open_storage(self.uri)
        storage.delete(f"{self.folder}{_INDEX}")
        for found in list(storage.list(f"{self.folder}plan/")):
            storage.delete(found.path)


@dataclass(frozen=True, slots=True)
class ShareWriter:
    """Over rows that have those of a partition one after another: writes each partition's share, and returns
    its number. In this process or in a task of Spark."""

    uri: str
    folder: str
    numbers: Mapping[tuple[str, str, str], int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage = open_storage(self.uri)
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for partition, some in groupby(rows, key=itemgetter(*_PARTITION)):
            number = self.numbers[partition]
            with storage.writer() as writer:
                for row in some:
                    writer.write(f"{json.dumps(row)}\n".encode())
                writer.commit(_path(self.folder, number), if_absent=False)
            yield pa.RecordBatch.from_pydict({"number": pa.array([number], pa.int64())})


def deal(storage: Storage, plan: RestorePlan, folder: str) -> Shares:
    """Write the shares of a planned restore below `folder`, or find those of the run that was cut off.

    Raises EnvironmentProblem (storage).
    """
    try:
        found = json.loads(storage.get(f"{folder}{_INDEX}"))
        return Shares(storage.uri, folder, tuple(tuple(paths) for paths in found))
    except NotFound:
        pass
    parts = sorted((p for t in plan.topics for p in t.parts), key=lambda p: -p.bytes)
    numbers = {(p.scope, p.epoch, p.region): number for number, p in enumerate(parts)}
    plan.chosen.map(
        ShareWriter(storage.uri, folder, numbers),
        "number BIGINT",
        "selected_files",
        spread=lambda rows: rows.repartition(*_PARTITION).sortWithinPartitions(
            *_PARTITION, "start_position", "path"
        ),
    )
    # The heavy ones begin first and the rest fill up behind them.
    tasks = [
        [_path(folder, number) for number in range(task, len(parts), MOST_TASKS)]
        for task in range(min(len(parts), MOST_TASKS))
    ]
    storage.put(f"{folder}{_INDEX}", json.dumps(tasks).encode())
    return Shares(storage.uri, folder, tuple(tuple(paths) for paths in tasks))


def regions_of(storage: Storage, folder: str) -> list[tuple[str, str, str]] | None:
    """The partitions (topic, epoch, number) whose shares lie below `folder`; None when there is no plan."""
    try:
        tasks: list[list[str]] = json.loads(storage.get(f"{folder}{_INDEX}"))
    except NotFound:
        return None
    firsts = (_first(storage, path) for path in chain.from_iterable(tasks))
    return [(row["scope"], row["epoch"], row["region"]) for row in firsts]


def _first(storage: Storage, path: str) -> dict[str, Any]:
    with storage.open(path) as stream:
        found: dict[str, Any] = json.loads(next(stream))
    return found


def _read(storage: Storage, path: str) -> Iterator[StoredFile]:
    with storage.open(path) as stream:
        for line in stream:
            yield StoredFile(**json.loads(line))


def _path(folder: str, number: int) -> str:
    return f"{folder}plan/{number:06d}.jsonl"
