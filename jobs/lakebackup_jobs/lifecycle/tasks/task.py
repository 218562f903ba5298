"""The tasks of a job: each does the work of its number and reports rows, on Spark or in this process."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.pace import paced
from lakebackup.sql_engine.worker import PerNumber, rate_of_one
from lakebackup_jobs.lifecycle.tasks.errors import guarded, raise_first
from lakebackup_jobs.lifecycle.tasks.progress import stopped_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.sql_engine.worker import Cluster

    Work = Callable[[], Mapping[str, Any]]


class Task(PerNumber):
    """What the task of a number does. An expected error is reported as a row, so that its type survives."""

    #: Of the rows that are reported. The last one is `error STRING`.
    COLUMNS: ClassVar[str]

    def run(self, number: int) -> Mapping[str, Any]:
        """Do it, in any process: values of COLUMNS but for the error, which is raised."""
        raise NotImplementedError

    def works(self, number: int) -> Iterator[Work]:
        """What is done for a number, each with a row of its own: `run`, if nothing else is said here."""
        yield partial(self.run, number)

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for work in self.works(number):
            yield guarded(self.COLUMNS, work)


def run_all(job: Task, numbers: range, cluster: Cluster | None, at_once: int | None = None) -> list[Any]:
    """Run tasks, at most `at_once` side by side; returns what they report, with COLUMNS as attributes.

    Without a cluster threads of this process do it; an error or Ctrl-C stops them when they next report
    progress. Raises the first error that a task reported.
    """
    if not numbers:
        return []
    if cluster is None:
        return _here(job, numbers, at_once or os.cpu_count() or 1)
    with task_errors():
        rows = [SimpleNamespace(**row) for row in job.reports(cluster, numbers, job.COLUMNS, at_once)]
    raise_first(row.error for row in rows)
    return rows


def _here(job: Task, numbers: range, at_once: int) -> list[Any]:
    rate = rate_of_one(min(len(numbers), at_once))

    def done(number: int) -> list[Any]:
        with paced(rate):
            return [SimpleNamespace(**{"error": None, **work()}) for work in job.works(number)]

    if len(numbers) == 1:  # on this thread, which may have a client of the cluster already
        return done(numbers[0])
    stop = threading.Event()
    with ThreadPoolExecutor(at_once, "task", stopped_by, (stop,)) as pool:
        try:
            return [row for rows in pool.map(done, numbers) for row in rows]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
