"""The tasks of a job. Each does the work of its number and reports rows, on Spark or in this process."""

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


# Threads that wait for disks and networks; more of them only wait for one another.
_THREADS_PER_PROCESSOR = 4


class Task(PerNumber):
    """The task of a job. Spark's tasks report expected errors as rows, so that their types survive."""

    #: The columns of the rows that the task reports. The last one is `error STRING`.
    COLUMNS: ClassVar[str]

    def run(self, number: int) -> Mapping[str, Any]:
        """Do the work of a number, in any process. Returns the values of COLUMNS except `error`; raises
        errors."""
        raise NotImplementedError

    def works(self, number: int) -> Iterator[Work]:
        """The pieces of work of a number. An error ends only its piece. By default, there is only `run`."""
        yield lambda: [self.run(number)]

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for work in self.works(number):
            yield guarded_rows(self.COLUMNS, work)


def run_all(job: Task, numbers: range, cluster: Cluster | None, max_tasks: int | None = None) -> list[Any]:
    """Run tasks, at most `max_tasks` in parallel. Returns the rows that they report, with COLUMNS as
    attributes.

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

    if len(numbers) == 1:  # this thread may have a client of the Kafka cluster already
        return run_task(numbers[0])
    stop = threading.Event()
    with ThreadPoolExecutor(most_threads, "task", stopped_by, (stop,)) as pool:
        try:
            return [row for rows in pool.map(run_task, numbers) for row in rows]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
