"""Compact the many small log files of a change feed into few large ones, sorted by key.

The result is a log backup like any other. Restores return the same rows, and read less. Once it is published,
the old files are no longer part of the log, and `log truncate` deletes them. Flushes continue meanwhile,
because only publishing takes the lease of the source.
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
from lakebackup_jobs.lifecycle.parts import parts_of
from lakebackup_jobs.lifecycle.run import Life
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
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
    """The options of a compaction. `until`: compact only flushes that end by this ts, None: all.

    `most_raw`: most bytes of records in a file; files with less than half of that are compacted. `encrypt`:
    None: if an old file is encrypted. `keys_file`: path of the key file; with encryption, its current key
    encrypts the new files.
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
    """Compact the log; returns the summary.

    Raises NotFound (no such log), Damaged (a file differs from the catalog; nothing was written), Busy
    (another run deletes files of the log), UsageProblem (keys) and EnvironmentProblem.
    """
    layout.check_source(request.name)
    reader = current_catalog(request.destination, request.catalog)
    if not reader.rows("log_truncate_state", source=request.name):
        raise NotFound(
            f"The catalog holds no log of {request.name}.", hint="`lakebackup log status` shows the tasks."
        )
    if request.dry_run:
        parameters = _parameters(request, latest_number(reader, request.name))
        files = reader.with_query("to_compact", "log_compact_files", **parameters)
        (totals,) = files.rows("log_compact_totals")
        return {"dry_run": True, "source": request.name, **totals}
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
    """The compaction of one log. `found`: the totals of the files that are compacted."""

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
        parameters = _parameters(self.request, latest_number(reader, work.source))
        files = self._engine.query("log_compact_files", **parameters)
        # The checkpoint fixes the selection: the files that are read are those that leave the log, even if
        # holds or damage change meanwhile.
        files.localCheckpoint(eager=True).createOrReplaceTempView("to_compact")
        (self.found,) = self._engine.rows("log_compact_totals")
        if not self.found["files"]:
            return None
        return InProgress.begin()

    def copy(self, draft: InProgress) -> Totals:
        from pyspark.sql import functions as sf

        work, request, selection = self.workspace, self.request, self.found
        encrypted = bool(selection["encrypted"]) if request.encrypt is None else request.encrypt
        count = max(1, min(_MOST_TASKS, selection["raw_bytes"] // request.most_raw + 1))
        write = WriteLog(
            **parts_of(self.workspace, draft),
            ts_domain=self._domain,
            codec=request.codec,
            cipher=keys_of(work.source, request.keys_file).cipher if encrypted else None,
            most_raw=request.most_raw,
        )
        read = ReadLog(work.storage.uri, write.folder, work.reader().destinations(), self.keys)
        work.reporter.start(selection["entries"], selection["bytes"], "compact", "events")
        records = work.spark.table("to_compact").repartition(count).mapInArrow(read, RECORDS)
        sorted_ = records.repartitionByRange(count, *(sf.col(name) for name in ORDER))
        sorted_ = sorted_.sortWithinPartitions(*ORDER)
        totals = Totals()
        with work.task_progress(write.folder).watched(work.reporter.update), task_errors():
            totals.add(sorted_.mapInArrow(write, OUTCOME).collect())  # one row for each task
        if totals.entries != selection["entries"]:
            raise AssertionError(f"{totals.entries} records were written of {selection['entries']}")
        work.reporter.update(selection["entries"], selection["bytes"])
        return totals

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:  # noqa: ARG002
        """Give the backup its number, and list the files that leave the log when it is published."""
        work, files = self.workspace, self.found["files"]
        newest = work.reader().one("log_newest", source=work.source)
        if newest is None:
            raise NotFound(f"The catalog holds no log of {work.source} any more.")
        draft, parts, new_totals = self.numbered(draft)
        job = ListDepartures(**parts_of(self.workspace, draft), first=parts)
        count = 1 + files // _LISTED_ROWS
        with task_errors():
            new_totals.add(
                work.spark.table("to_compact").repartition(count).mapInArrow(job, OUTCOME).collect()
            )
        rows = sidecar.read_parts(work.storage, work.source, draft.backup_id, parts)
        write_stream_meta(work.storage, work.source, draft.backup_id, newest["end_ts"], rows)
        return self.described(
            draft,
            parts + count,
            new_totals,
            SimpleNamespace(**newest),
            kind="log",
            level=1,
            ts_domain=self._domain,
            # While the log has no checkpoint, neither has its compaction.
            start_ts=None if newest["start_ts"] is None else newest["end_ts"],
            end_ts=newest["end_ts"],
            codec=self.request.codec,
            note=f"compaction of {files} log files",
        )

    def discard(self, draft: InProgress) -> int:
        storage, source = self.workspace.storage, self.workspace.source
        for entry in list(storage.list(layout.stream_metas_folder(source))):
            if draft.backup_id in entry.path:
                working.delete(storage, [entry.path])
        return self.workspace.empty(layout.log_folder(source, draft.backup_id))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        return {
            "source": self.workspace.source,
            **self.found,
            "backup_id": draft.backup_id,
            "kept_files": backup.files,
            "kept_bytes": backup.bytes,
        }


def _parameters(request: CompactLogRequest, newest: int) -> dict[str, Any]:
    return {
        "source": request.name,
        "until": request.until,
        "small": request.most_raw // 2,
        "newest": newest,
    }
