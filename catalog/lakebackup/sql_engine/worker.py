"""What the Spark tasks of this package share."""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakebackup.sql_engine.pace import paced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark import SparkContext, TaskContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    #: What runs tasks: Spark without SQL, or a session.
    Cluster = SparkContext | SparkSession

_settled = False
#: Bytes a second that the tasks of a job share, as the job that this process began last was asked.
_limit: int | None = None


def limit(rate: int | None) -> None:
    """The bytes a second that the tasks of the job that now begins share; None: as fast as they go."""
    global _limit
    _limit = rate


def rate_of_one(of: int) -> float | None:
    """The bytes a second that one of so many tasks may read or write; None: as many as it can."""
    return _limit / of if _limit else None


class PerNumber(ABC):
    """What Spark tasks do for each of some numbers, from 0: make its rows."""

    @abstractmethod
    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one number."""

    def over(
        self, spark: SparkSession, numbers: range, columns: str | StructType, at_once: int | None = None
    ) -> DataFrame:
        """The rows of consecutive numbers: a task for each, or `at_once` tasks that share them."""
        job, at_once = self.within_limit(numbers, at_once)
        return spark.range(numbers.start, numbers.stop, 1, _tasks(numbers, at_once)).mapInArrow(job, columns)

    def reports(
        self, cluster: Cluster, numbers: range, columns: str, at_once: int | None = None
    ) -> list[dict[str, Any]]:
        """The same rows, of which there are few, on the driver.

        Without SQL, which takes a cold session two seconds to load and plan; a Spark Connect server has
        nothing else.
        """
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if isinstance(cluster, SparkSession):
            cluster = cluster.sparkContext
        if not isinstance(cluster, SparkContext):
            return [row.asDict() for row in self.over(cluster, numbers, columns, at_once).collect()]
        job, at_once = self.within_limit(numbers, at_once)
        dealt = cluster.parallelize(numbers, _tasks(numbers, at_once))
        return dealt.mapPartitions(job.each).collect()

    def within_limit(self, numbers: range, at_once: int | None) -> tuple[PerNumber, int | None]:
        """What does the work within the limit of bytes a second, if there is one, and how many do it at once:
        no more than share the limit, however large the cluster is."""
        if not _limit:
            return self, at_once
        count = _tasks(numbers, at_once or os.cpu_count())
        return Paced(self, _limit / count), count

    def each(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        """What a task without SQL does: the rows of its numbers."""
        for number in numbers:
            for batch in self.rows(number):
                yield from batch.to_pylist()
        settle()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.rows(number)
        settle()


@dataclass(frozen=True, slots=True)
class Paced(PerNumber):
    """The same rows as those of `job`, whose tasks go at `rate` bytes a second each."""

    job: PerNumber
    rate: float

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        with paced(self.rate):
            yield from self.job.rows(number)


def session_on(cluster: Cluster) -> SparkSession:
    """The session, for what needs SQL."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate() if isinstance(cluster, SparkContext) else cluster


def _tasks(numbers: range, at_once: int | None) -> int:
    return max(1, min(len(numbers), at_once or len(numbers)))


def in_batches(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    """Rows in batches of at most `most`."""
    import pyarrow as pa

    left = iter(rows)
    while some := list(islice(left, most)):
        yield pa.RecordBatch.from_pylist(some, schema)


def in_chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema, most: int) -> Iterator[pa.Table]:
    """Rows, cast to a schema, in tables of `most` rows, the last of fewer; one table is held at a time."""
    import pyarrow as pa

    held: list[pa.Table] = []
    count = 0
    for batch in batches:
        held.append(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
        count += len(batch)
        if count >= most:
            rows = pa.concat_tables(held)
            whole = count - count % most
            yield from (rows.slice(at, most) for at in range(0, whole, most))
            held, count = [rows.slice(whole)], count - whole
    if count:
        yield pa.concat_tables(held)


def runs(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Rows cut where a column changes: its value, and the rows that have it in this batch."""
    import pyarrow.compute as pc

    for batch in filter(len, batches):
        found = pc.run_end_encode(batch[column])
        ends = found.run_ends.to_pylist()
        for value, start, stop in zip(found.values.to_pylist(), [0, *ends], ends, strict=False):
            yield value, batch.slice(start, stop - start)


def task_number() -> int:
    """The number of the Spark task that runs this; 0 outside of one."""
    context = _task()
    return context.partitionId() if context else 0


def _task() -> TaskContext | None:
    """The Spark task that runs this. PySpark is not loaded for it: in a task it is there."""
    loaded = sys.modules.get("pyspark.taskcontext")
    return loaded.TaskContext.get() if loaded else None


def settle() -> None:
    """Make Spark's Python worker cheaper between tasks; call it at the end of each. Outside it does nothing.

    After each task PySpark collects garbage over everything that numba and pyarrow imported, and at the start
    of each it makes Python read the folders of zip archives on its path again: together a fifth of a backup's
    processor time. What is loaded by now is needed until the worker ends.
    """
    if _task() is None:
        return
    global _settled
    if not _settled:
        gc.collect()
        gc.freeze()
        _settled = True
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # Recreated when something is imported from there, which is rare by now.
            del sys.path_importer_cache[path]
