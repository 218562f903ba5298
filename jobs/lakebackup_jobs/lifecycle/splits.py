"""The plan of a restore, written down: one share for each partition, read by the task that restores it.

The files that were planned are thereby the files that are restored, also when the restore is cut off and
goes on after another backup was taken. Rows stream from the catalog to storage; no list of them is held.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, groupby
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
    from lakebackup.store.reader import CatalogReader

# A task takes one partition, chunk or part of the work; where there are more than this, they share tasks.
MOST_TASKS = 200
_INDEX = "plan/tasks.json"


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


def deal(storage: Storage, reader: CatalogReader, plan: RestorePlan, folder: str) -> Shares:
    """Write the shares of a planned restore below `folder`, or find those of the run that was cut off.

    `reader` has the relation `selected`. Raises EnvironmentProblem (storage).
    """
    try:
        found = json.loads(storage.get(f"{folder}{_INDEX}"))
        return Shares(storage.uri, folder, tuple(tuple(paths) for paths in found))
    except NotFound:
        pass
    parts = sorted((p for t in plan.topics for p in t.parts), key=lambda p: -p.bytes)
    # The heavy ones begin first and the rest fill up behind them.
    task_of = {(p.scope, p.epoch, p.region): i % MOST_TASKS for i, p in enumerate(parts)}
    tasks: list[list[str]] = [[] for _ in range(min(len(parts), MOST_TASKS))]
    for number, (partition, rows) in enumerate(groupby(_rows(reader), key=_partition)):
        path = f"{folder}plan/{number:06d}.jsonl"
        with storage.writer() as writer:
            for row in rows:
                writer.write(f"{json.dumps(row)}\n".encode())
            writer.commit(path, if_absent=False)
        tasks[task_of[partition]].append(path)
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


def _rows(reader: CatalogReader) -> Iterator[dict[str, Any]]:
    for batch in reader.query("selected_files"):
        yield from batch.to_pylist()


def _partition(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["scope"], row["epoch"], row["region"]
