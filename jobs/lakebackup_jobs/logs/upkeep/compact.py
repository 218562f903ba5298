"""Compact the many small log files of a change feed into few large ones, sorted by key.

The result is a log backup like any other: restores give the same and read less. The old files leave the log
with it and are deleted by `log truncate`. Flushes continue meanwhile: only publishing takes the lease of the
source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lakebackup.errors import NotFound
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.logfile import MOST_RAW
from lakebackup.formats.logs.metafile import write_stream_meta
from lakebackup.requests import Request
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import working
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import current_catalog
from lakebackup_jobs.lifecycle.run import Life
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.part import parts_of
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.task import keys_of
from lakebackup_jobs.logs.upkeep.compact_task import ORDER, RECORDS, ListDepartures, ReadLog, WriteLog
from lakebackup_jobs.logs.upkeep.derived import Derived, InProgress
from lakebackup_jobs.logs.upkeep.truncate import keep_lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup.rows.backups import Backup
    from lakebackup.sql_engine.spark import SparkEngine
    from lakebackup.store.manifest import Manifest
    from lakebackup_jobs.lifecycle.progress import Reporter

_MOST_TASKS = 2_000
# Rows in one object of a table's listing.
_LISTED_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class CompactLogRequest(Request):
    """What a person asked for. `until`: of flushes that end by then (the feed's unit), None: all.

    `most_raw`: bytes of records in a file; files with less than half of that are compacted. `keys_file`: path
    of the file of keys; with `encrypt` its current key encrypts what is written.
    """

    name: str
    until: int | None = None
    codec: str = "zstd"
    encrypt: bool | None = None
    most_raw: int = MOST_RAW
    keys_file: str | None = None


def run(
    request: CompactLogRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Compact; returns the summary.

    Raises NotFound (no such log), Damaged (a file is not what the catalog says; nothing was written), Busy
    (another run deletes files of the log), UsageProblem (keys), EnvironmentProblem.
    """
    layout.check_source(request.name)
    reader = current_catalog(request.destination, request.catalog)
    if not reader.rows("log_truncate_state", source=request.name):
        raise NotFound(
            f"The catalog holds no log of {request.name}.", hint="`lakebackup log status` shows the tasks."
        )
    if request.dry_run:
        reader.define(
            "to_compact", "log_compact_files", **_asked(request, latest_number(reader, request.name))
        )
        (found,) = reader.rows("log_compact_totals")
        return {"dry_run": True, "source": request.name, **found}
    work = Workspace(request, request.name, reporter, spark)
    with work.running("compact", lease=keep_lease(request.name)) as lease:
        log = LogCompaction(work, request)
        life = Life(log, lease)
        life.settle()
        draft = log.plan()
        if draft is None:
            return {"source": request.name, **log.found, "backup_id": None}
        return work.timed(life.take(draft))


class LogCompaction(Derived):
    """One log. `found`: the totals of what is compacted."""

    DRAFT = TypeAdapter(InProgress)
    WORD = "compaction"

    def __init__(self, workspace: Workspace, request: CompactLogRequest) -> None:
        super().__init__(workspace)
        self.request = request
        self.keys = LogKeys.load(request.keys_file) if request.keys_file else None
        self.found: dict[str, Any] = {}
        self._domain = ""

    @property
    def record_path(self) -> str:
        return layout.compact_path(self.workspace.source)

    @cached_property
    def _engine(self) -> SparkEngine:
        from lakebackup.sql_engine.spark import SparkEngine

        return SparkEngine(self.workspace.spark, self.workspace.writer().catalog_uri)

    def plan(self) -> InProgress | None:
        work, reader = self.workspace, self.workspace.reader()
        self._domain = reader.rows("log_truncate_state", source=work.source)[0]["ts_domain"]
        asked = _asked(self.request, latest_number(reader, work.source))
        chosen = self._engine.query("log_compact_files", **asked)
        # Fixed: what is read is what leaves the log, whatever is held or found damaged meanwhile.
        chosen.localCheckpoint(eager=True).createOrReplaceTempView("to_compact")
        (self.found,) = self._engine.rows("log_compact_totals")
        if not self.found["files"]:
            return None
        return InProgress.begin()

    def copy(self, draft: InProgress) -> Totals:
        from pyspark.sql import functions as sf

        work, request, found = self.workspace, self.request, self.found
        encrypted = bool(found["encrypted"]) if request.encrypt is None else request.encrypt
        count = max(1, min(_MOST_TASKS, found["raw_bytes"] // request.most_raw + 1))
        write = WriteLog(
            **parts_of(self.workspace, draft),
            ts_domain=self._domain,
            codec=request.codec,
            cipher=keys_of(work.source, request.keys_file).cipher if encrypted else None,
            most_raw=request.most_raw,
        )
        read = ReadLog(work.storage.uri, write.folder, work.reader().destinations(), self.keys)
        work.reporter.start(found["entries"], found["bytes"], "compact", "events")
        records = work.spark.table("to_compact").repartition(count).mapInArrow(read, RECORDS)
        sorted_ = records.repartitionByRange(count, *(sf.col(name) for name in ORDER))
        sorted_ = sorted_.sortWithinPartitions(*ORDER)
        written = Totals()
        with work.task_progress(write.folder).watched(work.reporter.update), task_errors():
            written.add(sorted_.mapInArrow(write, OUTCOME).collect())  # a row a task
        if written.entries != found["entries"]:
            raise AssertionError(f"{written.entries} records were written of {found['entries']}")
        work.reporter.update(found["entries"], found["bytes"])
        return written

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:  # noqa: ARG002
        """Give the backup its number, and list what leaves the log with it."""
        work, files = self.workspace, self.found["files"]
        newest = work.reader().one("log_newest", source=work.source)
        if newest is None:
            raise NotFound(f"The catalog holds no log of {work.source} any more.")
        draft, parts, made = self.numbered(draft)
        job = ListDepartures(**parts_of(self.workspace, draft), first=parts)
        count = 1 + files // _LISTED_ROWS
        with task_errors():
            made.add(work.spark.table("to_compact").repartition(count).mapInArrow(job, OUTCOME).collect())
        written = sidecar.read_parts(work.storage, work.source, draft.backup_id, parts)
        write_stream_meta(work.storage, work.source, draft.backup_id, newest["end_ts"], written)
        return self.described(
            draft,
            parts + count,
            made,
            SimpleNamespace(**newest),
            kind="log",
            level=1,
            ts_domain=self._domain,
            # No checkpoint is known yet where the log before it has none.
            start_ts=None if newest["start_ts"] is None else newest["end_ts"],
            end_ts=newest["end_ts"],
            codec=self.request.codec,
            note=f"compaction of {files} log files",
        )

    def discard(self, draft: InProgress) -> int:
        storage, source = self.workspace.storage, self.workspace.source
        for found in list(storage.list(layout.stream_metas_folder(source))):
            if draft.backup_id in found.path:
                working.delete(storage, [found.path])
        return self.workspace.empty(layout.log_folder(source, draft.backup_id))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        return {
            "source": self.workspace.source,
            **self.found,
            "backup_id": draft.backup_id,
            "kept_files": backup.files,
            "kept_bytes": backup.bytes,
        }


def _asked(request: CompactLogRequest, newest: int) -> dict[str, Any]:
    return {
        "source": request.name,
        "until": request.until,
        "small": request.most_raw // 2,
        "newest": newest,
    }
