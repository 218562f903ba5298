"""The job of a log task: captures as long as the task is to run, sleeps while it is paused, ends with it.

Spark's Structured Streaming runs the flushes; nothing is held between two. What counts is the catalog: a
flush begins where the catalog ends and gives way when another backup of the task came in between. What a
person wants of the task is read from the catalog, about once a second.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from lakebackup import layout
from lakebackup.engine.failures import task_errors
from lakebackup.errors import Busy, EnvironmentProblem, LakebackupError
from lakebackup.lease import Lease
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter, destination_id
from lakebackup_jobs.changelog import flush as flushes
from lakebackup_jobs.changelog import publish, task
from lakebackup_jobs.changelog.fold_task import FOLDED
from lakebackup_jobs.changelog.trouble import Trouble
from lakebackup_jobs.identity import holder
from lakebackup_jobs.outcome import raise_first
from lakebackup_jobs.tally import Totals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.plan.log_flush import Flush
    from lakebackup_jobs.changelog.flush import LogRequest
    from lakebackup_jobs.changelog.task import State, Task
    from lakebackup_jobs.progress import Reporter

# As long as another job on the source may take before a flush gives up.
LEASE_WAIT_S = 900.0
# So many flushes lie between two times that small files of the catalog's tables are brought together.
SMALL_FILES = 100
_LOOK_S = 1.0
# So long until the catalog is told again, when it could not be written to.
_AGAIN_S = 5.0
_TOLD = re.compile(r"^RuntimeError: (\{.*\})$", re.MULTILINE)


class Taken(Busy):
    """Another job of the task is there."""


def run(
    request: LogRequest,
    *,
    stop: threading.Event,
    spark: SparkSession | None = None,
    reporter: Reporter,
    trouble: Trouble | None = None,
) -> dict[str, Any]:
    """Do what the task is to do until it is stopped or complete, or `stop` is set; returns the totals.

    A flush at work is finished first. What goes wrong pauses the task, and the catalog says why as soon as it
    can be told; `trouble` says it at once. Raises NotFound (no such task), Busy (another job of it is there).
    """
    from lakebackup_jobs.session import spark_session

    storage = open_storage(request.destination)
    task.require(CatalogReader.open(request.destination, request.catalog), request.name)
    job = _Job(request, reporter, stop, trouble or Trouble())
    try:
        destination_id(storage)
        return job.run(spark or spark_session())
    finally:
        job.lease.release()


class _Job:
    """The driver's side of one task."""

    def __init__(
        self,
        request: LogRequest,
        reporter: Reporter,
        stop: threading.Event,
        trouble: Trouble,
    ) -> None:
        self.request, self.reporter, self.stop, self.trouble = request, reporter, stop, trouble
        self.storage = open_storage(request.destination)
        self.lease = self.taken()
        self.totals = {"flushes": 0, "files": 0, "bytes": 0, "entries": 0}
        self.last: str | None = None
        self.at_work = threading.Lock()
        self.error: BaseException | None = None
        self.over = False
        self.failures = 0
        self.failed: str | None = None

    def run(self, spark: SparkSession) -> dict[str, Any]:
        """Capture, sleep, capture, until the task is over."""
        self.reporter.start(None, None, "log")
        over = False
        while not over and not self.stop.is_set():
            try:
                over = self.step(spark)
            except Taken:
                raise
            except LakebackupError as error:
                self.failures += 1
                if not error.retryable or self.failures >= self.request.tries:
                    self.pause(error)
                else:
                    self.reporter.warning(f"{error.message} Trying again.")
                    self.stop.wait(2.0 ** (self.failures - 1))
        return {"task": self.request.name, **self.totals, "last_backup": self.last}

    def step(self, spark: SparkSession) -> bool:
        """Do what the task is to do until it is to do something else; whether it is over."""
        self.hold()
        found = self.task()
        if found.state == "running":
            self.capture(spark, found)
            self.settle(spark)
        elif found.state == "paused":
            self.sleep()
        return found.over

    def taken(self) -> Lease:
        """The lease of the task. Raises Taken, EnvironmentProblem."""
        name, ttl_s = task.lease_name(self.request.name), self.request.lease_ttl_s
        try:
            return Lease.acquire(self.storage, name, holder(), ttl_s=ttl_s)
        except Busy as error:
            raise Taken(error.message, hint=error.hint) from None

    def hold(self) -> None:
        """Have the lease again, if it ended while the destination could not be written to."""
        try:
            self.lease.check()
        except Busy:
            self.lease = self.taken()

    def task(self) -> Task:
        """What the task is to do, as the catalog says now; the settings of the request follow it."""
        reader = CatalogReader(self.request.destination, self.request.catalog)
        found = task.require(reader, self.request.name)
        self.request = replace(self.request, settings=found.settings)
        return found

    def capture(self, spark: SparkSession, begun: Task) -> None:
        """Flush after flush, until something else is wanted of the task."""
        query = self.start(spark, now=False)
        try:
            while query.isActive and not (self.over or self.error) and not self.stop.wait(_LOOK_S):
                self.lease.check()
                if self.task().at != begun.at:
                    break
            asked = query.isActive
            if asked:
                self.at_work.acquire()  # a flush at work comes to its end, and none begins after it
        finally:
            query.stop()
            self.at_work = threading.Lock()
        self.explain(query, asked)
        if self.over:
            self.tell("complete")

    def settle(self, spark: SparkSession) -> None:
        """What came in until the task was paused is flushed at once; then the catalog says that it sleeps."""
        if self.task().state != "paused":
            return
        query = self.start(spark, now=True)
        try:
            query.processAllAvailable()
        except PySparkException:
            pass  # explained below
        finally:
            query.stop()
        try:
            self.explain(query, asked=False)
        except LakebackupError as error:
            self.pause(error)
        else:
            self.tell("paused")

    def start(self, spark: SparkSession, *, now: bool) -> Any:
        """The streaming query."""
        from lakebackup_jobs.changelog.source import name_of, source_of

        self.error = None
        spark.dataSource.register(source_of(self.request, now=now))
        folder = f"{self.storage.uri}/{layout.follow_folder(self.request.name)}"
        return (
            spark.readStream.format(name_of(self.request))
            .load()
            .writeStream.foreachBatch(self.batch)
            .option("checkpointLocation", folder)
            .trigger(processingTime="1 second")
            .start()
        )

    def sleep(self) -> None:
        """Until something else is wanted."""
        while not self.stop.wait(_LOOK_S):
            self.lease.check()
            if self.task().state != "paused":
                self.trouble.text = None
                return
            self.failures = 0

    def pause(self, error: LakebackupError) -> None:
        """The task pauses itself, and says why, as soon as the catalog can be written to."""
        self.reporter.warning(f"{error.message} The task pauses.")
        self.trouble.text = str(error)
        while True:
            try:
                self.hold()
                self.tell("paused", str(error))
            except Taken:
                raise
            except LakebackupError as untold:
                self.reporter.warning(f"The catalog cannot be told: {untold.message}")
                if self.stop.wait(_AGAIN_S):
                    return
            else:
                return

    def tell(self, state: State, detail: str | None = None) -> None:
        """Put down what has become of the task, unless somebody wants something else of it by now."""
        if not self.task().over:
            task.tell(
                self.request.destination,
                self.request.catalog,
                self.request.name,
                state,
                self.request.settings,
                detail,
            )

    def batch(self, rows: DataFrame, number: int) -> None:  # noqa: ARG002 (Spark's signature)
        """One flush, called by Spark on a thread of its own."""
        if not self.at_work.acquire(blocking=False):
            raise InterruptedError("it stops here; the flush runs when capturing begins again")
        try:
            with Lease.acquire(
                self.storage,
                f"source-{self.request.name}",
                holder(),
                ttl_s=self.request.lease_ttl_s,
                wait_s=LEASE_WAIT_S,
            ) as lease:
                self.take(rows, lease)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.at_work.release()

    def take(self, rows: DataFrame, lease: Lease) -> None:
        """Run the tasks and publish what they wrote."""
        from lakebackup_jobs.changelog.source import read_flush

        with task_errors():
            found = rows.collect()  # one row a task
        text = next((row.flush for row in found if row.flush), None)
        if text is None:
            return
        flush = read_flush(text)
        if not flushes.is_next(self.request, flush):
            self.overtaken(flush)
            return
        told = [row for row in found if row.flush is None]
        totals = Totals()
        try:
            totals.add(told)
        except LakebackupError as error:
            # It runs again with the tasks that were done; once more in vain, and another one is planned.
            if self.failed != flush.backup_id:
                self.failed = flush.backup_id
                raise
            self.error = error
            return
        ends = publish.ends_of([row.ends for row in told])
        if (
            flush.newest
            and not flush.gaps
            and not any(p.end_position > p.start_position for p in publish.captured(flush, ends))
        ):
            return  # not one transaction is whole
        fold = flushes.fold_job(self.request, flush)
        with task_errors():
            last = rows.sparkSession.range(0, 1, 1, 1).mapInArrow(fold, FOLDED).collect()
        totals.add(last)
        domain = fold.feed.domain
        backup = publish.row_of(
            self.request, flush, totals, last[0].checkpoint, domain, publish.home_of(self.request)
        )
        writer = CatalogWriter.open(rows.sparkSession, self.request.destination, self.request.catalog)
        done = publish.publish(self.request, flush, backup, ends, writer, lease)
        self.count(done)
        endts = self.request.settings.endts
        self.over = endts is not None and last[0].checkpoint is not None and last[0].checkpoint >= endts
        if flush.number % SMALL_FILES == 0:
            writer.tidy(SMALL_FILES)

    def count(self, done: Mapping[str, Any]) -> None:
        self.failures, self.trouble.text = 0, None
        self.last = done["backup_id"]
        self.totals["flushes"] += 1
        for name in ("files", "bytes", "entries"):
            self.totals[name] += done[name]
        self.reporter.update(self.totals["entries"], self.totals["bytes"])
        self.reporter.note(f"flush {self.last}: {done['entries']} records, checkpoint {done['end_ts']}")

    def overtaken(self, flush: Flush) -> None:
        """The flush is in the catalog already, or another backup is, behind which the next one goes on."""
        reader = CatalogReader(self.request.destination, self.request.catalog)
        if reader.rows("find_backups", prefix=flush.backup_id):
            publish.mark(self.request, flush)

    def explain(self, query: Any, asked: bool) -> None:
        """Raise what ended the query, if it was not asked to end."""
        failure = self.error or (None if asked else query.exception())
        if failure is None:
            return
        if isinstance(failure, LakebackupError):
            raise failure
        said = _TOLD.search(str(failure))
        if said:
            raise_first([said[1]])
        raise EnvironmentProblem(f"Spark could not run a flush: {str(failure)[:2000]}") from failure
