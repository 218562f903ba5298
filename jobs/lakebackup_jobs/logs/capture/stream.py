"""One streaming query of a log task: it runs flush after flush, each published under the source's lease."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.lifecycle.task_errors import raise_first
from lakebackup_jobs.lifecycle.task_totals import Totals
from lakebackup_jobs.logs.capture import flush as flushes
from lakebackup_jobs.logs.capture import publish
from lakebackup_jobs.logs.capture.fold_task import FOLDED
from lakebackup_jobs.logs.capture.source import name_of, read_flush, source_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.logs.flush import Flush
    from lakebackup_jobs.logs.capture.flush import LogRequest

# As long as another job on the source may take before a flush gives up.
LEASE_WAIT_S = 900.0
# So many flushes lie between two times that small files of the catalog's tables are brought together.
SMALL_FILES = 100
_TOLD = re.compile(r"^RuntimeError: (\{.*\})$", re.MULTILINE)


class Listener(Protocol):
    """Who is told of flushes, on a thread of Spark's."""

    def flushed(self, done: Mapping[str, Any]) -> None:
        """One is in the catalog: what `publish` says of it."""
        ...

    def fails_again(self, backup_id: str) -> bool:
        """Whether the tasks of this flush had failed before."""
        ...


class Capture:
    """A query that is at work as soon as this is made. `now`: it flushes what there is.

    `over`: the checkpoint has reached the task's `endts`. `error`: what a flush failed by.
    """

    def __init__(self, request: LogRequest, spark: SparkSession, listener: Listener, *, now: bool) -> None:
        self.over = False
        self.error: BaseException | None = None
        self._request, self._listener = request, listener
        self._storage = open_storage(request.destination)
        self._at_work = threading.Lock()
        spark.dataSource.register(source_of(request, now=now))
        folder = f"{self._storage.uri}/{layout.follow_folder(request.name)}"
        self._query = (
            spark.readStream.format(name_of(request))
            .load()
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", folder)
            .trigger(processingTime="1 second")
            .start()
        )

    @property
    def runs(self) -> bool:
        """Whether it has more to do."""
        return self._query.isActive and not self.over and self.error is None

    def finish(self) -> None:
        """Let the flush at work come to its end; none begins after it. Raises what ended the query before."""
        asked = self._query.isActive
        if asked:
            self._at_work.acquire()
        self._query.stop()
        self._explain(asked)

    def drain(self) -> None:
        """Wait until what `now` flushes is in the catalog. Raises as `finish`."""
        from pyspark.errors import PySparkException

        try:
            self._query.processAllAvailable()
        except PySparkException:
            pass  # explained below
        finally:
            self._query.stop()
        self._explain(asked=False)

    def abandon(self) -> None:
        """Stop at once."""
        self._query.stop()

    def _batch(self, rows: DataFrame, number: int) -> None:  # noqa: ARG002 (Spark's signature)
        """One flush, called by Spark on a thread of its own."""
        if not self._at_work.acquire(blocking=False):
            raise InterruptedError("it stops here; the flush runs when capturing begins again")
        name, ttl_s = f"source-{self._request.name}", self._request.lease_ttl_s
        try:
            with Lease.acquire(self._storage, name, holder(), ttl_s=ttl_s, wait_s=LEASE_WAIT_S) as lease:
                self._take(rows, lease)
        except BaseException as error:
            self.error = error
            if isinstance(error, LakebackupError):
                error.__traceback__ = None  # Py4J keeps the error for good: not all that its traceback holds
            raise
        finally:
            self._at_work.release()

    def _take(self, rows: DataFrame, lease: Lease) -> None:
        """Run the tasks and publish what they wrote."""
        request = self._request
        with task_errors():
            found = rows.collect()  # one row a task
        text = next((row.flush for row in found if row.flush), None)
        if text is None:
            return
        flush = read_flush(text)
        if not flushes.is_next(request, flush):
            self._overtaken(flush)
            return
        told = [row for row in found if row.flush is None]
        totals = Totals()
        try:
            totals.add(told)
        except LakebackupError as error:
            # It runs again with the tasks that were done; once more in vain, and another one is planned.
            if not self._listener.fails_again(flush.backup_id):
                raise
            self.error = error
            return
        ends = publish.ends_of([row.ends for row in told])
        if publish.idle(flush, ends):
            return
        fold = flushes.fold_job(request, flush)
        with task_errors():
            last = rows.sparkSession.range(0, 1, 1, 1).mapInArrow(fold, FOLDED).collect()
        totals.add(last)
        [checkpoint] = [row.checkpoint for row in last]
        backup = publish.row_of(request, flush, totals, checkpoint, fold.feed.domain)
        writer = CatalogWriter.open(rows.sparkSession, request.destination, request.catalog)
        done = publish.publish(request, flush, backup, ends, writer, lease)
        self._listener.flushed(done)
        endts = request.settings.endts
        self.over = endts is not None and checkpoint is not None and checkpoint >= endts
        if flush.number % SMALL_FILES == 0:
            writer.tidy(SMALL_FILES)

    def _overtaken(self, flush: Flush) -> None:
        """The flush is in the catalog already, or another backup is, behind which the next one goes on."""
        reader = CatalogReader(self._request.destination, self._request.catalog)
        if reader.rows("find_backups", prefix=flush.backup_id):
            publish.mark(self._request, flush)

    def _explain(self, asked: bool) -> None:
        """Raise what ended the query, if it was not asked to end."""
        failure = self.error or (None if asked else self._query.exception())
        if failure is None:
            return
        if isinstance(failure, LakebackupError):
            raise failure
        said = _TOLD.search(str(failure))
        if said:
            raise_first([said[1]])
        raise EnvironmentProblem(f"Spark could not run a flush: {str(failure)[:2000]}") from failure
