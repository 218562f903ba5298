"""Compact the many small log files of a change feed into few large ones, sorted by key.

The result is a log backup like any other. Restores return the same rows, and read less. Once it is published,
the old files are no longer part of the log, and `log truncate` deletes them. Flushes continue meanwhile,
because only publishing takes the lease of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from lakebackup.encryption.storage import EncryptedStorage
from lakebackup.errors import NotFound, UsageProblem
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.logfile import MOST_RAW
from lakebackup.formats.logs.metafile import write_stream_meta
from lakebackup.requests import Request
from lakebackup.rows.backups import Backup
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import working
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import current_catalog
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.manifest import Manifest
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.keyring import open_replaced, open_roots
from lakebackup_jobs.lifecycle.parts import parts_of
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.plan_shares import clear, require_plan, store_plan, weighed
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.task import keys_of
from lakebackup_jobs.logs.upkeep.compact_task import ORDER, RECORDS, ListDepartures, ReadLog, WriteLog
from lakebackup_jobs.logs.upkeep.derived import Derived, InProgress
from lakebackup_jobs.logs.upkeep.truncate import keep_lease

_MOST_TASKS = 2_000
# Rows in one object of a table's listing.
_LISTED_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class CompactLogRequest(Request):
    """The options of a compaction. `until`: compact only flushes that end by this ts, None: all.

    `most_raw`: most bytes of records in a file; files with less than half of that are compacted. `encrypt`:
    None: if an old file is encrypted, or there are recipients. `recipients`: who can read the new files;
    without recipients, the current key of `keys_file` encrypts them.
    """

    name: str
    until: int | None = None
    codec: str = "zstd"
    encrypt: bool | None = None
    most_raw: int = MOST_RAW
    keys_file: str | None = None
    recipients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogCompactPlan:
    """The files that a compaction merges and that leave the log: rows of log_compact_files, and totals."""

    totals: Mapping[str, Any]
    ts_domain: str
    file: PlanFile = field(compare=False)


def run(
    request: CompactLogRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Compact the log; returns the summary.

    Raises NotFound (no such log), Damaged (a file differs from the catalog; nothing was written), Busy
    (another run deletes files of the log), Refused (encrypted files would be replaced by files in clear),
    UsageProblem (keys) and EnvironmentProblem.
    """
    layout.check_source(request.name)
    reader = current_catalog(request.destination, request.catalog)
    if request.dry_run:
        return {"dry_run": True, "source": request.name, **_plan(request, reader).totals}
    _domain(request.name, reader)
    work = Workspace(request, request.name, reporter, spark)
    with work.running("compact", lease=keep_lease(request.name)) as lease:
        plan = _plan(request, work.reader())
        life = Life(LogCompaction(work, request, plan), lease)
        life.finish_interrupted()
        if not plan.file.rows:
            return {"source": request.name, **plan.totals, "backup_id": None}
        return work.timed(life.run(InProgress.begin()))


class LogCompaction(Derived):
    """The compaction of one log, as planned."""

    DRAFT = TypeAdapter(InProgress)
    WORD = "compaction"

    def __init__(self, workspace: Workspace, request: CompactLogRequest, plan: LogCompactPlan) -> None:
        super().__init__(workspace)
        self.request, self.plan = request, plan
        self.keys = LogKeys.load(request.keys_file) if request.keys_file else None
        self.encryption = RunEncryption.of(request.recipients, workspace.storage)
        if request.encrypt is False:
            if isinstance(workspace.storage, EncryptedStorage):
                raise UsageProblem(
                    f"--no-encrypt: the metadata of {workspace.storage.uri} is encrypted.",
                    hint="Leave --no-encrypt out: the data is encrypted there too.",
                )
            self.encryption = None

    @property
    def record_path(self) -> str:
        return layout.compact_path(self.workspace.source)

    def prepare(self, draft: InProgress) -> InProgress:
        file, storage = self.plan.file, self.workspace.storage
        size = max(self.request.most_raw, self.plan.totals["raw_bytes"] // _MOST_TASKS)
        shares = weighed(file.batches(), size, weight="raw_bytes")
        store_plan(storage, self.folder(draft), file, shares, most_tasks=_MOST_TASKS)
        return draft

    def copy(self, draft: InProgress) -> Totals:
        work, request, planned = self.workspace, self.request, self.plan.totals
        encrypted = bool(planned["encrypted"]) if request.encrypt is None else request.encrypt
        is_by_key_file = encrypted and self.encryption is None
        shares, _ = require_plan(work.storage, self.folder(draft))
        if request.encrypt is None:
            roots = open_replaced(work.reader(), shares.file, self.encryption)
        else:
            roots = open_roots(work.reader(), shares.file)
        write = WriteLog(
            **parts_of(work, draft, encryption=self.encryption),
            ts_domain=self.plan.ts_domain,
            codec=request.codec,
            cipher=keys_of(work.source, request.keys_file).cipher if is_by_key_file else None,
            most_raw=request.most_raw,
        )
        read = ReadLog(shares, roots, self.keys)
        work.reporter.start(planned["entries"], planned["bytes"], "compact", "events")
        records = read.over(work.spark, shares.numbers, RECORDS)
        sorted_ = records.repartitionByRange(len(shares.tasks), *(sf.col(name) for name in ORDER))
        sorted_ = sorted_.sortWithinPartitions(*ORDER)
        totals = Totals()
        with work.task_progress(write.folder).watched(work.reporter.update), task_errors():
            totals.add(sorted_.mapInArrow(write, OUTCOME).collect())  # one row for each task
        if totals.entries != planned["entries"]:
            raise AssertionError(f"{totals.entries} records were written of {planned['entries']}")
        work.reporter.update(planned["entries"], planned["bytes"])
        return totals

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:  # noqa: ARG002
        """Give the backup its number, and list the files that leave the log when it is published."""
        work = self.workspace
        shares, _ = require_plan(work.storage, self.folder(draft))
        newest = work.reader().first_row("log_newest", source=work.source)
        if newest is None:
            raise NotFound(f"The catalog holds no log of {work.source} any more.")
        draft, parts, new_totals = self.numbered(draft)
        job = ListDepartures(**parts_of(work, draft), file=shares.file, first=parts, most=_LISTED_ROWS)
        count = 1 + shares.file.rows // _LISTED_ROWS
        new_totals.add(run_all(job, range(parts, parts + count), work.task_cluster))
        rows = sidecar.read_parts(work.storage, work.source, draft.backup_id, parts)
        write_stream_meta(work.storage, work.source, draft.backup_id, newest["end_ts"], rows)
        return self.described(
            draft,
            parts + count,
            new_totals,
            SimpleNamespace(**newest),
            kind="log",
            level=1,
            ts_domain=self.plan.ts_domain,
            # While the log has no checkpoint, neither has its compaction.
            start_ts=None if newest["start_ts"] is None else newest["end_ts"],
            end_ts=newest["end_ts"],
            codec=self.request.codec,
            note=f"compaction of {shares.file.rows} log files",
        )

    def discard(self, draft: InProgress) -> int:
        storage, source = self.workspace.storage, self.workspace.source
        for entry in list(storage.list(layout.stream_metas_folder(source))):
            if draft.backup_id in entry.path:
                working.delete(storage, [entry.path])
        return self.workspace.empty(layout.log_folder(source, draft.backup_id))

    def finish(self, draft: InProgress) -> None:
        super().finish(draft)
        clear(self.workspace.storage, self.folder(draft))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        return {
            "source": self.workspace.source,
            **self.plan.totals,
            "backup_id": draft.backup_id,
            "kept_files": backup.files,
            "kept_bytes": backup.bytes,
        }


def _plan(request: CompactLogRequest, reader: CatalogReader) -> LogCompactPlan:
    """Plan the compaction; writes nothing to the repository. Raises NotFound."""
    ts_domain = _domain(request.name, reader)
    file = reader.plan_file(
        "log_compact_files",
        source=request.name,
        until=request.until,
        small=request.most_raw // 2,
        newest=latest_number(reader, request.name),
    )
    (totals,) = reader.with_rows("to_compact", file).rows("log_compact_totals")
    return LogCompactPlan(totals, ts_domain, file)


def _domain(source: str, reader: CatalogReader) -> str:
    """The unit of the ts of a log. Raises NotFound when there is no such log."""
    state = reader.first_row("log_truncate_state", source=source)
    if state is None:
        raise NotFound(
            f"The catalog holds no log of {source}.", hint="`lakebackup log status` shows the tasks."
        )
    return str(state["ts_domain"])
