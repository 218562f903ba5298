"""The streaming query of a log task: it runs flush after flush."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import TypeAdapter
from pyspark.sql import DataFrame, Row, SparkSession

from lakebackup.errors import LakebackupError
from lakebackup.plan.logs.flush import Flush
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import publish as publish_backup
from lakebackup_jobs.lifecycle.run import result_of
from lakebackup_jobs.lifecycle.stream import Stream
from lakebackup_jobs.lifecycle.stream_source import Job, Planner
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.capture import flush as flushes
from lakebackup_jobs.logs.capture import publish, region_marks
from lakebackup_jobs.logs.capture.flush import LogRequest
from lakebackup_jobs.logs.capture.flush_task import CAPTURED


class FlushPlanner(Planner[Flush]):
    """Plans the flushes of one task. `immediate`: flush what has arrived, whether a flush is due or not.
    `encryption`: how the job encrypts its backups."""

    DRAFT = TypeAdapter(Flush)
    COLUMNS = CAPTURED

    def __init__(self, request: LogRequest, immediate: bool, encryption: RunEncryption | None = None) -> None:
        self._request, self._immediate, self._encryption = request, immediate, encryption
        self._planner: flushes.Planner | None = None

    def plan(self) -> Flush | None:
        self._planner = self._planner or flushes.Planner(self._request)
        return self._planner.plan(immediate=self._immediate)

    def job(self, draft: Flush) -> tuple[Job, int] | None:
        request = self._request
        reader = CatalogReader(request.destination, request.catalog)
        if latest_number(reader, request.name) + 1 != draft.number or not flushes.is_wanted(request, draft):
            return None
        return flushes.capture_job(request, draft, self._encryption), len(draft.tasks)


class FlushReports(Protocol):
    """Where a capture reports its flushes; `lakebackup_jobs.logs.capture.job.LogJob` is one.
    `encryption`: how the job encrypts its backups."""

    reporter: Reporter
    encryption: RunEncryption | None

    def flushed(self, flush_summary: Mapping[str, Any]) -> None:
        """A flush was published; `flush_summary` is its result."""
        ...

    def failed_before(self, backup_id: str) -> bool:
        """Whether the flush with this id has failed before."""
        ...


class Capture(Stream[Flush]):
    """Runs the flushes of one task and publishes each as a backup.

    `immediate`: flush what has arrived, whether due or not. `over`: the checkpoint has reached the task's
    `endts`.
    """

    def __init__(
        self, request: LogRequest, spark: SparkSession, job: FlushReports, *, immediate: bool
    ) -> None:
        self._request, self._job = request, job
        work = Workspace(request, request.name, job.reporter, spark)
        super().__init__(
            work,
            f"lakebackup_log_{request.name}",
            FlushPlanner(request, immediate, job.encryption),
            every_ms=1_000,
        )

    def failed(self, draft: Flush, error: LakebackupError) -> None:
        # A flush that failed once runs again and keeps its finished tasks. After a second failure another
        # flush is planned.
        if not self._job.failed_before(draft.backup_id):
            raise error
        self.error = error

    def finished(self, draft: Flush) -> None:
        region_marks.clear(self.workspace.storage, self._request.name, draft.backup_id)

    def publish(self, draft: Flush, rows: list[Row], totals: Totals, lease: Lease, batch: DataFrame) -> None:
        request, ends = self._request, publish.ends_of([row.ends for row in rows])
        if not flushes.is_wanted(request, draft) or publish.idle(draft, ends):
            return
        fold = flushes.fold_job(request, draft)
        fold_rows = run_all(fold, range(1), batch.sparkSession)
        totals.add(fold_rows)
        [checkpoint] = [row.checkpoint for row in fold_rows]
        backup = publish.row_of(request, self.workspace, draft, totals, checkpoint, fold.feed.domain)
        manifest = publish.manifest(self.workspace, draft, backup, ends)
        publish_backup(self.workspace, manifest, lease, encrypted=self._job.encryption is not None)
        self.finished(draft)
        self._job.flushed(result_of(backup, {"end_ts": backup.end_ts}))
        endts = request.settings.endts
        self.over = endts is not None and checkpoint is not None and checkpoint >= endts
