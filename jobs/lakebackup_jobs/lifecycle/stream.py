"""A streaming query that takes backup after backup, each published under the source's lease.

Nothing is held between two batches. What counts is the catalog: a batch begins where the catalog ends, and
gives way when another backup was taken in between, so that batches and single backups continue each other.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import cause_in, task_errors
from lakebackup_jobs.lifecycle.run import exists, is_unconfirmed, mark_complete
from lakebackup_jobs.lifecycle.source import D
from lakebackup_jobs.lifecycle.stream_source import source_class
from lakebackup_jobs.lifecycle.tasks.errors import raise_first
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.totals import Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from lakebackup.store.lease import Lease
    from lakebackup_jobs.lifecycle.stream_source import Planner
    from lakebackup_jobs.lifecycle.workspace import Workspace

# As long as another job on the source may take before a batch gives up.
LEASE_WAIT_S = 900.0
# So many backups lie between two times that small files of the catalog's tables are brought together.
SMALL_FILES = 100
_REPORTED = re.compile(r"^RuntimeError: (\{.*\})$", re.MULTILINE)


class Stream(ABC, Generic[D]):
    """A query that is at work as soon as this is made. `over`: it has nothing more to do. `error`: what a
    batch failed by."""

    def __init__(self, workspace: Workspace, name: str, planner: Planner[D], every_ms: int) -> None:
        self.workspace, self._planner = workspace, planner
        self.over = False
        self.error: BaseException | None = None
        self._at_work = threading.Lock()
        spark = workspace.spark
        spark.dataSource.register(source_class(name, planner))
        folder = f"{workspace.storage.uri}/{layout.follow_folder(workspace.source)}"
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
        """Make the backup exist whose tasks are done; `rows`: what they reported."""

    @abstractmethod
    def failed(self, draft: D, error: LakebackupError) -> None:
        """A task reported an error. Raises it, and the same draft runs again when the query is restarted;
        otherwise the next one is planned."""

    def finished(self, draft: D) -> None:
        """Delete what only the run needed of a backup that exists. Can be repeated."""

    @property
    def runs(self) -> bool:
        """Whether it has more to do."""
        return self._query.isActive and not self.over and self.error is None

    def finish(self) -> None:
        """Let the batch at work come to its end; none begins after it. Raises what ended the query before."""
        asked = self._query.isActive
        if asked:
            self._at_work.acquire()
        self._query.stop()
        self._explain(asked)

    def drain(self) -> None:
        """Wait until the planner has no more to do. Raises as `finish`."""
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
        """One backup, called by Spark on a thread of its own."""
        if not self._at_work.acquire(blocking=False):
            raise InterruptedError("it stops here; the batch runs when the query is started again")
        try:
            with self.workspace.lease(wait_s=LEASE_WAIT_S) as lease:
                self._take(rows, lease)
        except BaseException as error:
            self.error = error
            if isinstance(error, LakebackupError):
                error.__traceback__ = None  # Py4J keeps the error for good: not all that its traceback holds
            raise
        finally:
            self._at_work.release()

    def _take(self, batch: DataFrame, lease: Lease) -> None:
        """Run the tasks and publish what they wrote."""
        with task_errors():
            found = batch.collect()  # one row a task
        text = next((row.draft for row in found if row.draft), None)
        if text is None:
            return
        work, draft = self.workspace, self._planner.DRAFT.validate_json(text)
        if latest_number(work.reader(), work.source) + 1 != draft.number:
            if exists(work, draft.backup_id):
                if not is_unconfirmed(work, draft.backup_id):  # what it held is taken again
                    mark_complete(work, draft.backup_id)
                self.finished(draft)
            return
        done = [row for row in found if row.draft is None]
        totals = Totals()
        try:
            totals.add(done)
        except LakebackupError as error:
            self.failed(draft, error)
            return
        self.publish(draft, done, totals, lease, batch)
        if draft.number % SMALL_FILES == 0:
            work.writer().merge_small_files(SMALL_FILES)

    def _explain(self, asked: bool) -> None:
        """Raise what ended the query, if it was not asked to end."""
        failure: Any = self.error or (None if asked else self._query.exception())
        if failure is None:
            return
        if isinstance(failure, LakebackupError):
            raise failure
        reported = _REPORTED.search(str(failure))
        if reported:
            raise_first([reported[1]])
        raise EnvironmentProblem(f"Spark could not run a batch: {cause_in(failure)}") from failure
