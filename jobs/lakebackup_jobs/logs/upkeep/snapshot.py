"""Writes a full of a change feed: a Delta table of the latest committed values at an instant, beside the log.

The table is the restore of the previous full and the log since then. Its objects become rows of `files`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakebackup.encryption.storage import EncryptedStorage
from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.logs.restore import (
    LogRestorePlan,
    LogRestoreRequest,
    gap_note,
    plan_restore,
    require_restorable,
)
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.base import CHANGES
from lakebackup.rules import layout
from lakebackup.storage import Storage, open_storage, working
from lakebackup.store.lease import is_held
from lakebackup.store.manifest import Manifest
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.parts import parts_of
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life, mark_complete
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore.job import summary_of, write_target
from lakebackup_jobs.logs.upkeep.derived import Derived, InProgress, WithoutNumber
from lakebackup_jobs.targets import RestoredSpan
from lakebackup_jobs.targets.delta import DeltaTarget

FORMAT = "delta"
# Objects of a full that one task describes.
_EACH = 64


@dataclass(frozen=True, slots=True)
class FullRequest(LogRestoreRequest):
    """The options of a full. `plain`: make it even if log files are encrypted, or new backups are encrypted
    for `recipients`, although a full is not."""

    plain: bool = False
    recipients: tuple[str, ...] = ()


def run(request: FullRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Write the full as of the end of the request; returns its summary.

    Raises as a restore does, Refused (it would be in clear), UsageProblem (the repository's metadata is
    encrypted), and Busy.
    """
    work = Workspace(request, request.name, reporter, spark)
    if isinstance(work.storage, EncryptedStorage):
        raise UsageProblem(
            f"A full is a Delta table in clear, and the metadata of {work.storage.uri} is encrypted.",
            hint="`log compact` encrypts, and makes restores without a full faster. `log restore` and `log "
            "merge` make tables elsewhere.",
        )
    request = replace(request, on_full=True, filters=())
    full = InProgress.begin()
    catalog = work.current()
    if request.dry_run:
        return {"dry_run": True, **_summary(full, _planned(request, work, catalog))}
    with work.running("full", CHANGES, lease=_lease_name(full.backup_id)) as lease:
        work.start_jvm()
        plan = _planned(request, work, catalog)
        _check(request, plan)
        work.start_spark()
        sweep(work)
        result = Life(LogFull(work, request, catalog, plan), lease).run(full)
    return work.timed({**_summary(full, plan), **result})


def _planned(request: LogRestoreRequest, work: Workspace, catalog: CatalogReader) -> LogRestorePlan:
    plan = plan_restore(request, catalog, leave_uncovered=True)
    for note in plan.notes:
        work.reporter.warning(note)
    return plan


def _summary(full: InProgress, plan: LogRestorePlan) -> dict[str, Any]:
    return {"backup_id": full.backup_id, **summary_of(plan), "time_ms": plan.to_ms}


def _check(request: FullRequest, plan: LogRestorePlan) -> None:
    if plan.encrypted and not request.plain:
        raise Refused(
            f"{plan.encrypted} log files of {plan.source} are encrypted; a full would show their values.",
            hint="Give --plain if they may lie beside the log as they are.",
        )
    if request.recipients and not request.plain:
        raise Refused(
            "A full is not encrypted, and recipients are set under [encryption].",
            hint="Give --plain if the tables may lie beside the log in clear. `log compact` encrypts, and "
            "makes restores without a full faster.",
        )
    require_restorable(plan, allow_gaps=request.allow_gaps)


def _lease_name(backup_id: str) -> str:
    return f"full-{backup_id}"


def sweep(work: Workspace) -> None:
    """Clean up after fulls that were interrupted.

    If the catalog has the full as complete, write its marker, without which a rebuilt catalog would not
    restore it. If the catalog does not have it, delete its objects. One in another state stays as it is.
    """
    source = work.source
    for backup_id in list(work.storage.folders(layout.fulls_folder(source))):
        # In this order: a run writes the marker before it releases its lease.
        if is_held(work.storage, _lease_name(backup_id)) or work.storage.exists(
            layout.marker_path(source, backup_id, "complete")
        ):
            continue
        if backups := work.reader().rows("show_backup", backup_id=backup_id):
            if backups[0]["state"] == "complete":
                mark_complete(work, backup_id)
            continue
        work.reporter.note(f"deleting what the interrupted full {backup_id} left")
        # The manifest first, because a rebuilt catalog would take it for a full.
        working.delete(work.storage, [layout.manifest_path(source, backup_id)])
        work.empty(layout.full_folder(source, backup_id), layout.backup_folder(source, backup_id))


class LogFull(Derived):
    """The full of one log. An interrupted one is not resumed: `sweep` deletes its objects."""

    WORD = "full"

    def __init__(
        self, workspace: Workspace, request: LogRestoreRequest, catalog: CatalogReader, plan: LogRestorePlan
    ) -> None:
        super().__init__(workspace)
        self.request, self.catalog, self.restore_plan = request, catalog, plan

    def copy(self, draft: InProgress) -> Totals:
        work, plan = self.workspace, self.restore_plan
        folder = layout.full_folder(work.source, draft.backup_id)
        target = DeltaTarget(f"{work.storage.uri}/{folder}".rstrip("/"))
        contents = RestoredSpan.after_restore(None, plan, self.request)
        plan_folder = self.folder(draft)  # `sweep` empties it
        counts = write_target(self.request, work, self.catalog, plan, target, None, contents, plan_folder)
        self._describe(draft, folder)
        totals = Totals()
        totals.entries = counts["entries"]
        return totals

    def _describe(self, draft: InProgress, folder: str) -> None:
        """Store the rows of the full's objects until the full has a number."""
        plan, work = self.restore_plan, self.workspace
        job = _Describe(
            **parts_of(work, draft),
            domain=plan.domain,
            end_ts=plan.end_ts,
            objects=folder,
            shares=tuple(_shares(work.storage, folder)),
        )
        run_all(job, range(len(job.shares)), work.cluster)

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:  # noqa: ARG002
        draft, parts, part_totals = self.numbered(draft)
        return self.described(
            draft,
            parts,
            part_totals,
            None,
            kind="full",
            level=0,
            ts_domain=self.restore_plan.domain,
            end_ts=self.restore_plan.end_ts,
            codec="none",
            note=gap_note(self.restore_plan),
        )

    def discard(self, draft: InProgress) -> int:
        return self.workspace.empty(layout.full_folder(self.workspace.source, draft.backup_id))

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:  # noqa: ARG002
        return {"number": backup.number, "entries": backup.entries, "bytes_stored": backup.bytes}


def _shares(storage: Storage, folder: str) -> Iterator[str]:
    """The path of the object after which the share of each task begins; the first is empty.

    Deletes Hadoop's checksum files, which only exist in local folders: the rows have a digest.
    """
    count, previous_path = 0, ""
    for entry in storage.list(folder):
        if entry.path.rpartition("/")[2].startswith("."):
            storage.delete(entry.path)
            continue
        if count % _EACH == 0:
            yield previous_path
        count, previous_path = count + 1, entry.path


@dataclass(frozen=True, kw_only=True)
class _Describe(WithoutNumber, Task):
    """Stores the rows of a full's objects, which are in the folder `objects`. A task describes one share."""

    COLUMNS = "error STRING"

    domain: str
    end_ts: int
    objects: str
    shares: tuple[str, ...]

    def run(self, number: int) -> Mapping[str, Any]:
        storage = open_storage(self.uri)
        entries = islice(storage.list(self.objects, start_after=self.shares[number]), _EACH)
        self.keep_apart(
            storage, number, [self._row(entry.path, storage.get(entry.path)) for entry in entries]
        )
        return {}

    def _row(self, path: str, data: bytes) -> DataFile:
        has_rows = path.endswith(".parquet") and "/_delta_log/" not in path
        return self.row(
            path=path,
            bytes=len(data),
            entries=pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows if has_rows else 0,
            sha256=hashlib.sha256(data).hexdigest(),
            raw_bytes=len(data),
            scope="-",
            epoch="-",
            region="-",
            format=FORMAT,
            codec="none",
            ts_domain=self.domain,
            min_ts=self.end_ts,
            max_ts=self.end_ts,
            start_position=0,
            end_position=1,
        )
