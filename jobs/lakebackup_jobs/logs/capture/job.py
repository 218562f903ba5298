"""The job of a log task: it captures while the task runs, sleeps while it is paused, and ends with it.

Spark Structured Streaming runs the flushes. The catalog is the only state: a flush starts where the last
backup ends, and is discarded when another backup of the task took its number. The job watches the task's
state in the catalog (see TaskWatch).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from shlex import quote
from typing import Any

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_after_attempt, wait_fixed

from lakebackup.errors import Busy, LakebackupError
from lakebackup.storage import open_storage
from lakebackup.store.behind import require_current
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.trust import Unapproved
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.lifecycle.lost_objects import notice_lost_objects
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs import skips, task
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.capture.stream import Capture
from lakebackup_jobs.logs.task import LastError, State, Task
from lakebackup_jobs.logs.task_watch import TaskWatch

_POLL_S = 1.0
# Wait before another attempt to write the catalog.
_RETRY_S = 5.0


class JobRunning(Busy):
    """Another job of this task is running."""


def run(
    request: LogRequest,
    *,
    stop: threading.Event,
    spark: SparkSession | None = None,
    reporter: Reporter,
    last_error: LastError | None = None,
) -> dict[str, Any]:
    """Run the task until it is stopped or complete, or `stop` is set; returns the totals.

    The job finishes a flush in progress first. An error pauses the task. The error is in `last_error` at
    once, and in the catalog as soon as that is writable. Raises NotFound (no such task) and Busy (another job
    of the task runs).
    """
    reader = CatalogReader.open(request.destination, request.catalog)
    task.require(reader, request.name)
    if reader:
        require_current(reader)
    job = LogJob(request, reporter, stop, last_error or LastError())
    try:
        work = Workspace(request, request.name, reporter, spark)
        work.start_sql()
        destination_id(job.storage)
        # Once for each job, as flushes follow each other too fast to list the storage for each.
        notice_lost_objects(work, work.reader())
        return job.run(work.spark)
    finally:
        job.lease.release()


class LogJob:
    """Runs one task in Spark's driver."""

    def __init__(
        self, request: LogRequest, reporter: Reporter, stop: threading.Event, last_error: LastError
    ) -> None:
        self.request, self.reporter, self.stop, self.last_error = request, reporter, stop, last_error
        self.storage = open_storage(request.destination)
        self.encryption = RunEncryption.of(request.recipients, self.storage)
        self.lease = self.acquire_lease()
        self.totals = {"flushes": 0, "files": 0, "bytes": 0, "entries": 0}
        self.last: str | None = None
        self.failures = 0
        self.failed: str | None = None
        self.catalog_uri = CatalogReader(request.destination, request.catalog).catalog_uri
        self.watch = TaskWatch(f"{self.catalog_uri}/log_tasks", self.task)

    def run(self, spark: SparkSession) -> dict[str, Any]:
        """Follow the task's state until it has ended."""
        self.reporter.start(None, None, "log", "events")
        over = False
        while not over and not self.stop.is_set():
            try:
                over = self.step(spark)
            except (JobRunning, Unapproved):
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
        """Follow the task's state until it changes; returns whether the task has ended."""
        self.keep_lease()
        self.watch.forget()
        current_task = self.watch.look()
        if current_task.state == "running":
            self.capture(spark, current_task)
            self.finish_pause(spark)
        elif current_task.state == "paused":
            self.sleep()
        return current_task.over

    def capture(self, spark: SparkSession, started: Task) -> None:
        """Flush repeatedly until the task changes."""
        capture = Capture(self.request, spark, self, immediate=False)
        try:
            while capture.runs and not self.stop.wait(_POLL_S):
                self.lease.check()
                if self.watched_task().recorded_us != started.recorded_us:
                    break
        except BaseException:
            capture.abandon()
            raise
        capture.finish()
        if capture.over:
            self.record("complete")

    def finish_pause(self, spark: SparkSession) -> None:
        """Flush the events from before the pause, then record that the task is paused."""
        paused_task = self.task()
        if paused_task.state != "paused":
            return
        try:
            Capture(self.request, spark, self, immediate=True).drain()
        except LakebackupError as error:
            self.pause(error)
        else:
            self.record("paused", expected=paused_task)  # It may have been resumed meanwhile.

    def sleep(self) -> None:
        """Wait until the task is no longer paused."""
        while not self.stop.wait(_POLL_S):
            self.lease.check()
            if self.watch.look().state != "paused":
                self.last_error.text = None
                self.lease.renew()  # `log resume` waits for the lease's next generation.
                return
            self.failures = 0

    def pause(self, error: LakebackupError) -> None:
        """Pause the task, and record the error as soon as the catalog is writable."""
        self.reporter.warning(f"{error.message} The task pauses.")
        error.hint = " ".join(filter(None, (error.hint, self.way_past(error))))
        self.last_error.text = str(error)
        self.last_error.paused(error)
        while True:
            try:
                self.keep_lease()
                self.record("paused", str(error))
            except JobRunning:
                raise
            except LakebackupError as problem:
                self.reporter.warning(f"The catalog cannot be written: {problem.message}")
                if self.stop.wait(_RETRY_S):
                    return
            else:
                return

    def way_past(self, error: LakebackupError) -> str:
        """How the task can continue without the message that an error names; empty when it names none."""
        message = skips.named_in(error.message)
        if message is None or error.retryable:
            return ""
        return (
            f"Or go on without this message: lakebackup log resume {quote(self.request.name)} "
            f"--skip {message.text} (audited; restores over it then need --allow-gaps)."
        )

    def flushed(self, flush_summary: Mapping[str, Any]) -> None:
        """Count a committed flush; `flush_summary`: its summary. Runs on a Spark thread, as `failed_before`
        does."""
        self.failures, self.last_error.text, self.last = 0, None, flush_summary["backup_id"]
        self.totals["flushes"] += 1
        for name in ("files", "bytes", "entries"):
            self.totals[name] += flush_summary[name]
        self.reporter.update(self.totals["entries"], self.totals["bytes"])
        summary = f"{flush_summary['entries']} records in {flush_summary['seconds']} s"
        self.reporter.note(f"flush {self.last}: {summary}, checkpoint {flush_summary['end_ts']}")

    def failed_before(self, backup_id: str) -> bool:
        """Whether this flush has failed before; records that it failed."""
        last_failed, self.failed = self.failed, backup_id
        return last_failed == backup_id

    def acquire_lease(self) -> Lease:
        """Acquire the lease of the task. Raises JobRunning, EnvironmentProblem."""
        name, ttl_s = task.lease_name(self.request.name), self.request.lease_ttl_s
        try:
            return Lease.acquire(self.storage, name, holder(), ttl_s=ttl_s)
        except Busy as error:
            raise JobRunning(error.message, hint=error.hint) from None

    def keep_lease(self) -> None:
        """Acquire the lease again if it expired while the destination was not writable."""
        try:
            self.lease.check()
        except Busy:
            self.lease = self.acquire_lease()

    def task(self) -> Task:
        """The task as it is now in the catalog; updates the request's settings.

        Raises Unapproved unless this machine's settings name what the task does or a person approved it here.
        """
        current_task = self.recorded_task()
        task.require_approved(self.catalog_uri, current_task.name, current_task.settings)
        self.request = replace(self.request, settings=current_task.settings)
        return current_task

    def recorded_task(self) -> Task:
        """The task as it is now in the catalog."""
        return task.require(CatalogReader(self.request.destination, self.request.catalog), self.request.name)

    def watched_task(self) -> Task:
        """The task as `watch` sees it. Retries, so that passing errors do not disturb a flush in progress."""
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, LakebackupError) and error.retryable),
            wait=wait_fixed(_POLL_S),
            stop=stop_after_attempt(self.request.tries),
            before_sleep=lambda _: self.lease.check(),
            sleep=sleep_using_event(self.stop),
            reraise=True,
        )
        return retrying(self.watch.look)

    def record(self, state: State, detail: str | None = None, *, expected: Task | None = None) -> None:
        """Record the state of the task, unless it has ended or was changed since `expected`."""
        current_task, request = self.recorded_task(), self.request
        if not current_task.over:
            location = (request.destination, request.catalog, current_task.name)
            task.record(*location, state, current_task.settings, detail, expected=expected or current_task)
            self.watch.forget()
