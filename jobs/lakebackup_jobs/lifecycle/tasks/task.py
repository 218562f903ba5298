"""Runs the numbered tasks of a job on Spark or in threads of this process, and returns their rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa

from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.pace import paced
from lakebackup.sql_engine.worker import Cluster, PerNumber, rate_of_one
from lakebackup_jobs.lifecycle.tasks.errors import guarded_rows, raise_first
from lakebackup_jobs.lifecycle.tasks.progress import stopped_by

#: A piece of work, which returns rows.
Work = Callable[[], Sequence[Mapping[str, Any]]]


# Threads mostly wait for disks and networks. More threads than this only wait for one another.
_THREADS_PER_PROCESSOR = 4


class Task(PerNumber):
    """A job whose work is divided into numbered tasks.

    On Spark, a task reports an expected error as a row, since Spark would lose the error's type.
    """

    #: The columns of the rows that the task reports. The last one is `error STRING`.
    COLUMNS: ClassVar[str]

    def run(self, number: int) -> Mapping[str, Any]:
        """Do the work of one task, in any process. Return the values of COLUMNS except `error`. Errors are
        raised."""
        raise NotImplementedError

    def works(self, number: int) -> Iterator[Work]:
        """Yield the pieces of work of one task. An error ends only its piece. By default, `run` is the only
        one."""
        yield lambda: [self.run(number)]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for work in self.works(number):
            yield guarded_rows(self.COLUMNS, work)


def run_all(job: Task, numbers: range, cluster: Cluster | None, max_tasks: int | None = None) -> list[Any]:
    """Run tasks, at most `max_tasks` in parallel. Return the rows that they report, as objects with COLUMNS
    as attributes.

    Without a cluster, threads of this process run the tasks; an error or Ctrl-C stops them when they next
    report progress. Raises the first error that a task reported.
    """
    if not numbers:
        return []
    if cluster is None:
        processors = os.cpu_count() or 1
        return _run_in_process(
            job, numbers, min(max_tasks or processors, _THREADS_PER_PROCESSOR * processors)
        )
    with task_errors():
        rows = [SimpleNamespace(**row) for row in job.reports(cluster, numbers, job.COLUMNS, max_tasks)]
    raise_first(row.error for row in rows)
    return rows


def _run_in_process(job: Task, numbers: range, most_threads: int) -> list[Any]:
    rate = rate_of_one(min(len(numbers), most_threads))

    def run_task(number: int) -> list[Any]:
        with paced(rate):
            return [SimpleNamespace(**{"error": None, **row}) for work in job.works(number) for row in work()]

    if len(numbers) == 1:  # no new thread: this one may have a client of the Kafka cluster already
        return run_task(numbers[0])
    stop = threading.Event()
    with ThreadPoolExecutor(most_threads, "task", stopped_by, (stop,)) as pool:
        try:
            return [row for rows in pool.map(run_task, numbers) for row in rows]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
