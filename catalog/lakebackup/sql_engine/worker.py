"""What Spark tasks share: jobs over numbers, a limit of bytes a second, rows in batches and as messages, and
the task's number."""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakebackup.sql_engine.pace import paced

#: What runs tasks: a Spark context, without SQL, or a session.
Cluster: TypeAlias = "SparkContext | SparkSession"
#: The columns of the rows of `as_messages`.
MESSAGES = "message BINARY"
_heap_frozen = False
#: The bytes a second that all tasks of the newest job of this process share; None: no limit.
_bytes_per_second: int | None = None


def as_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: makes each batch one row, a stream of Arrow's IPC format."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        message = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.record_batch([message], names=["message"])


def limit(rate: int | None) -> None:
    """Set the bytes a second that all tasks of the next job share; None: no limit."""
    global _bytes_per_second
    _bytes_per_second = rate


def rate_of_one(of: int) -> float | None:
    """Return the bytes a second that one of `of` tasks may read or write; None: no limit."""
    return _bytes_per_second / of if _bytes_per_second else None


class PerNumber(ABC):
    """A job of Spark tasks over the numbers 0, 1, …: it makes rows for each number."""

    @abstractmethod
    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one number."""

    def over(
        self, spark: SparkSession, numbers: range, columns: str | StructType, max_tasks: int | None = None
    ) -> DataFrame:
        """Return the rows of consecutive numbers as a DataFrame. Each number has a task of its own, or
        `max_tasks` tasks share the numbers."""
        job, max_tasks = self.within_limit(numbers, max_tasks)
        return spark.range(numbers.start, numbers.stop, 1, _tasks(numbers, max_tasks)).mapInArrow(
            job, columns
        )

    def reports(
        self, cluster: Cluster, numbers: range, columns: str, max_tasks: int | None = None
    ) -> list[dict[str, Any]]:
        """Collect the same rows on the driver; there must be few.

        It runs without SQL, which a cold session needs two seconds to load and plan. Only a Spark Connect
        server has nothing but SQL.
        """
        if isinstance(cluster, SparkSession):
            cluster = cluster.sparkContext
        if not isinstance(cluster, SparkContext):
            return [row.asDict() for row in self.over(cluster, numbers, columns, max_tasks).collect()]
        job, max_tasks = self.within_limit(numbers, max_tasks)
        partitions = cluster.parallelize(numbers, _tasks(numbers, max_tasks))
        return partitions.mapPartitions(job.each).collect()

    def within_limit(self, numbers: range, max_tasks: int | None) -> tuple[PerNumber, int | None]:
        """Return the job that keeps within the limit of bytes a second, and its number of tasks.

        Where there is a limit, no more tasks run than share it, however large the cluster is.
        """
        if not _bytes_per_second:
            return self, max_tasks
        count = _tasks(numbers, max_tasks or os.cpu_count())
        return Paced(self, _bytes_per_second / count), count

    def each(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a task's numbers; this is what a task without SQL runs."""
        for number in numbers:
            for batch in self.rows(number):
                yield from batch.to_pylist()
        trim_worker()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.rows(number)
        trim_worker()


@dataclass(frozen=True, slots=True)
class Paced(PerNumber):
    """The rows of `job`, made by tasks that read and write at most `rate` bytes a second each."""

    job: PerNumber
    rate: float

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        with paced(self.rate):
            yield from self.job.rows(number)


def session_on(cluster: Cluster) -> SparkSession:
    """Return the session of a cluster, for work that needs SQL."""
    return SparkSession.builder.getOrCreate() if isinstance(cluster, SparkContext) else cluster


def _tasks(numbers: range, max_tasks: int | None) -> int:
    return max(1, min(len(numbers), max_tasks or len(numbers)))


def in_batches(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of at most `most` rows."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, most)):
        yield pa.RecordBatch.from_pylist(chunk, schema)


def in_chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema, most: int) -> Iterator[pa.Table]:
    """Yield rows, cast to a schema, in tables of `most` rows; the last may have fewer. Memory holds one table
    at a time."""
    tables: list[pa.Table] = []
    count = 0
    for batch in batches:
        tables.append(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
        count += len(batch)
        if count >= most:
            rows = pa.concat_tables(tables)
            full_rows = count - count % most
            yield from (rows.slice(start, most) for start in range(0, full_rows, most))
            tables, count = [rows.slice(full_rows)], count - full_rows
    if count:
        yield pa.concat_tables(tables)


def runs(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Cut rows where a column's value changes. Yields the value, and the rows of a batch that have it."""
    for batch in filter(len, batches):
        encoded = pc.run_end_encode(batch[column])
        ends = encoded.run_ends.to_pylist()
        for value, start, stop in zip(encoded.values.to_pylist(), [0, *ends], ends, strict=False):
            yield value, batch.slice(start, stop - start)


def task_number() -> int:
    """Return the number of the Spark task that runs this; 0 outside of Spark."""
    context = _task_context()
    return context.partitionId() if context else 0


def _task_context() -> TaskContext | None:
    """The Spark task that runs this; None outside of Spark. Does not load PySpark, which every task has
    loaded."""
    module = sys.modules.get("pyspark.taskcontext")
    return module.TaskContext.get() if module else None


def trim_worker() -> None:
    """Make Spark's Python worker cheaper between tasks. Call it at the end of each task; elsewhere it does
    nothing.

    After each task PySpark collects garbage, also over all that numba and pyarrow imported. At the start of
    each task it makes Python read the folders of the zip archives on its path again. Both together take a
    fifth of a backup's processor time. So objects that exist now are frozen: the worker needs them until it
    ends. And the archives leave Python's cache, where it would refresh them.
    """
    if _task_context() is None:
        return
    global _heap_frozen
    if not _heap_frozen:
        gc.collect()
        gc.freeze()
        _heap_frozen = True
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # Python creates it again when something is imported from there, which is rare by now.
            del sys.path_importer_cache[path]
