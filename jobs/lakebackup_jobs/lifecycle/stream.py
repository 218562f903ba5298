"""A streaming query that takes backup after backup, each published under the source's lease.

Between two batches the query holds no lease. Only the catalog counts: a batch begins where the catalog ends.
It is skipped when another backup was taken in between, so batches and single backups continue each other.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any, Generic

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import cause_in, task_errors
from lakebackup.storage import EncryptedUri
from lakebackup.store.lease import Lease
from lakebackup_jobs.lifecycle.run import exists, is_unconfirmed, mark_complete
from lakebackup_jobs.lifecycle.source import D
from lakebackup_jobs.lifecycle.stream_source import Planner, source_class
from lakebackup_jobs.lifecycle.tasks.errors import raise_first
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace

# How long a batch waits for another job on the source before it gives up.
LEASE_WAIT_S = 900.0
# After every this many backups, rows of `log_regions` that later ones replace are dropped.
FOLD_EVERY = 100
_REPORTED_ERROR = re.compile(r"^RuntimeError: (\{.*\})$", re.MULTILINE)


class Stream(ABC, Generic[D]):
    """A streaming query, which starts with the object. `over`: it has nothing more to do. `error`: the error
    of a failed batch."""

    def __init__(self, workspace: Workspace, name: str, planner: Planner[D], every_ms: int) -> None:
        self.workspace, self._planner = workspace, planner
        self.over = False
        self.error: BaseException | None = None
        self._batch_lock = threading.Lock()
        spark = workspace.spark
        spark.dataSource.register(source_class(name, planner))
        self._ending = ExitStack()
        folder = f"{workspace.storage.uri}/{layout.follow_folder(workspace.source)}"
        if isinstance(workspace.storage.uri, EncryptedUri):
            # Spark writes topics' names into its checkpoint. Without one, the next run asks the catalog.
            folder = f"file://{self._ending.enter_context(TemporaryDirectory(prefix='lakebackup-follow-'))}"
        self._query = (
            spark.readStream.format(name)
            .load()
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", folder)
            .trigger(processingTime=f"{every_ms} milliseconds")
            .start()
        )

    @abstractmethod
    def publish(self, draft: D, rows: list[Row], totals: Totals, lease: Lease, batch: DataFrame) -> None:
        """Publish the backup whose tasks are done. `rows`: what the tasks reported."""

    @abstractmethod
    def failed(self, draft: D, error: LakebackupError) -> None:
        """Handle an error that a task reported. If this raises, the same draft runs again when the query is
        restarted; otherwise the next backup is planned."""

    def finished(self, draft: D) -> None:
        """Delete what only the run of an existing backup needed. Can be repeated."""

    @property
    def runs(self) -> bool:
        """Whether the query is active and has more to do."""
        return self._query.isActive and not self.over and self.error is None

    def finish(self) -> None:
        """Stop the query after the batch that runs now. Raises the error if the query had failed before."""
        was_active = self._query.isActive
        if was_active:
            self._batch_lock.acquire()
        self.abandon()
        self._raise_failure(was_active)

    def drain(self) -> None:
        """Wait until the planner has nothing more to do, then stop. Raises what `finish` raises."""
        try:
            self._query.processAllAvailable()
        except PySparkException:
            pass  # raised below, as an error of ours
        finally:
            self.abandon()
        self._raise_failure(was_stopped=False)

    def abandon(self) -> None:
        """Stop the query immediately."""
        self._query.stop()
        self._ending.close()

    def _batch(self, rows: DataFrame, number: int) -> None:  # noqa: ARG002 (Spark's signature)
        """Take one backup. Spark calls this on a thread of its own."""
        if not self._batch_lock.acquire(blocking=False):
            raise InterruptedError("it stops here; the batch runs when the query is started again")
        try:
            with self.workspace.lease(wait_s=LEASE_WAIT_S) as lease:
                self._receive(rows, lease)
        except BaseException as error:
            self.error = error
            if isinstance(error, LakebackupError):
                error.__traceback__ = None  # Py4J keeps the error forever; free what the traceback refers to
            raise
        finally:
            self._batch_lock.release()

    def _receive(self, batch: DataFrame, lease: Lease) -> None:
        """Run the tasks and publish what they wrote."""
        with task_errors():
            rows = batch.collect()  # one row for each task
        text = next((row.draft for row in rows if row.draft), None)
        if text is None:
            return
        work, draft = self.workspace, self._planner.DRAFT.validate_json(text)
        if latest_number(work.reader(), work.source) + 1 != draft.number:
            if exists(work, draft.backup_id):
                if not is_unconfirmed(work, draft.backup_id):  # an unconfirmed backup is taken again
                    mark_complete(work, draft.backup_id)
                self.finished(draft)
            return
        outcomes = [row for row in rows if row.draft is None]
        totals = Totals()
        try:
            totals.add(outcomes)
        except LakebackupError as error:
            self.failed(draft, error)
            return
        self.publish(draft, outcomes, totals, lease, batch)
        if draft.number % FOLD_EVERY == 0:
            work.writer().fold("log_regions")

    def _raise_failure(self, was_stopped: bool) -> None:
        """Raise the error that ended the query, unless this process stopped it (`was_stopped`)."""
        failure: Any = self.error or (None if was_stopped else self._query.exception())
        if failure is None:
            return
        if isinstance(failure, LakebackupError):
            raise failure
        reported = _REPORTED_ERROR.search(str(failure))
        if reported:
            raise_first([reported[1]])
        raise EnvironmentProblem(f"Spark could not run a batch: {cause_in(failure)}") from failure
