"""Back up a snapshot: list its files, compare them with the newest backup, copy what is new, and publish.

Small amounts of work run in this process. Spark starts when there are many files to list, compare or copy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from pyspark.sql import SparkSession

from lakebackup.errors import Damaged, LakebackupError, UsageProblem
from lakebackup.formats.snapshots.manifest_json import export_manifest
from lakebackup.formats.snapshots.tree import layout_of
from lakebackup.plan.snapshots import backup as plan
from lakebackup.plan.snapshots.backup import Newest, Snapshot
from lakebackup.rows.backups import Backup, Scope
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules import layout
from lakebackup.storage.nesting import require_no_repository
from lakebackup.store import data_keys
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.manifest import Manifest
from lakebackup.store.reader import CatalogReader
from lakebackup.store.tombstones import require_recorded
from lakebackup.store.writer import Session
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.lost_objects import notice_lost_objects
from lakebackup_jobs.lifecycle.parts import run_tasks
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life, backup_row
from lakebackup_jobs.lifecycle.source import Draft, Source
from lakebackup_jobs.lifecycle.tasks.plan_shares import clear, store_plan, stored_plan
from lakebackup_jobs.lifecycle.tasks.runner import of_files
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.snapshots.compare import Comparison, compare, counted
from lakebackup_jobs.snapshots.find import find, root_of
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.snapshots.resume import InProgress
from lakebackup_jobs.snapshots.source import Entry
from lakebackup_jobs.snapshots.tasks.copy import CopyJob

# Up to this many small files are stored one by one, under names that people can read. More are packed.
_MOST_UNPACKED = 64


def run(request: SnapshotRequest, *, spark: Session = None, reporter: Reporter) -> dict[str, Any]:
    """Back up each requested snapshot. Returns the summary of the backup, or of all if there are several.

    Raises NotFound (path, snapshot), UsageProblem (layout, a snapshot older than the newest backup), Refused
    (a symbolic link, a file that changed meanwhile, an interrupted prune, a catalog that lacks stored
    backups), Busy (another run on the source), EnvironmentProblem, Damaged.
    """
    if not request.paths:
        raise UsageProblem("Missing PATH: where is the snapshot?", hint="Name a folder.")
    source = layout.check_source(request.source or root_of(request.paths[0]).name)
    for path in request.paths:
        require_no_repository(request, source, path)
    work = Workspace(request, source, reporter, spark)
    if request.dry_run:
        return SnapshotBackup(work, request).preview()
    with work.running("backup", SNAPSHOT) as lease:
        job = SnapshotBackup(work, request)
        job.reader = work.writer().prepare()
        require_recorded(work.storage, source, job.reader)
        job.reader = notice_lost_objects(work, job.reader)
        snapshots = job.choose(plan.newest_of(job.reader, source))
        job.next = snapshots[0] if snapshots else None
        life = Life(job, lease)
        completed = life.finish_interrupted()
        results = [completed] if completed else []
        for snapshot in snapshots[len(results) :]:
            job.next = snapshot
            if results:
                job.reader = work.reader()  # sees the backup that was just taken
            results.append(life.run(job.plan()))
    return results[0] if len(results) == 1 else {"source": source, "backups": results}


class SnapshotBackup(Source[InProgress]):
    """Backups of the snapshots of one source. `next` is the snapshot to back up next. `reader` reads the
    catalog as it was before that backup."""

    DRAFT = TypeAdapter(InProgress)
    DISCARD_WHEN_REFUSED = True  # the snapshot or the recorded plan has changed

    def __init__(self, workspace: Workspace, request: SnapshotRequest) -> None:
        super().__init__(workspace)
        self.request = request
        self.encryption = RunEncryption.of(request.recipients, workspace.storage)
        self.reader = workspace.reader()
        self.next: Snapshot | None = None
        self._layout = layout_of(request.layout)
        self._start_ms = time.time_ns() // 1_000_000
        self._snapshots = find(request.paths, self._layout, request.sidecars)

    def preview(self) -> dict[str, Any]:
        """Return what a backup would do. Writes nothing."""
        reader = self.workspace.existing()
        source = self.workspace.source
        newest = plan.newest_of(reader, source) if reader else None
        snapshots = self.choose(newest)
        preview: dict[str, Any] = {"dry_run": True, "source": source, "snapshots": [s.id for s in snapshots]}
        if not snapshots:
            return preview
        self._require_time(snapshots[0], newest)
        if reader is None:
            files, size = counted(self.request, snapshots[0].units, self._session)
            return {**preview, **_summary(plan.Amount({"new": files}, files, size, files, size, 0))}
        comparison = self._compare(snapshots[0], reader)
        return {**preview, **_summary(comparison.amount)}

    @property
    def _next(self) -> Snapshot:
        if self.next is None:
            raise AssertionError("no snapshot was chosen")
        return self.next

    def plan(self) -> InProgress:
        """Return a draft of the backup of the next snapshot, without what it copies. `prepare` adds that."""
        request, work, snapshot, started = self.request, self.workspace, self._next, datetime.now(UTC)
        reader, end_ts = self.reader, self._end_ts_of(snapshot)
        newest = plan.newest_of(reader, work.source)
        self._require_time(snapshot, newest)
        full = newest is None or request.mode == "full"
        return InProgress(
            backup_id=layout.new_backup_id(started),
            number=newest.number + 1 if newest else 1,
            started_at=micros(started),
            kind="full" if full else "differential",
            parent=None if full or newest is None else newest.backup_id,
            compared_with=newest.backup_id if newest else None,
            pruned=reader.rows("latest_prune", source=work.source)[0],
            snapshot=snapshot.id,
            lasting=self._layout.has_snapshot,
            end_ts=end_ts,
            tables=snapshot.tables,
            amount=plan.Amount({}, 0, 0, 0, 0, 0),
            tasks=0,
            pack_below=0,
            asked=request.identity,
            codec=request.codec,
        )

    def prepare(self, draft: InProgress) -> InProgress:
        """Compare the snapshot with the newest backup, and record what the copy tasks work on."""
        request, work = self.request, self.workspace
        comparison = self._compare(self._next, self.reader)
        amount, shares = comparison.amount, comparison.shares(request.parallelism)
        if shares:
            store_plan(work.storage, self._folder(draft), comparison.file, shares, most_tasks=len(shares))
        pack_below = request.pack_below if amount.small > _MOST_UNPACKED else 0
        return replace(draft, amount=amount, tasks=len(shares), pack_below=pack_below, dealt=True)

    def resume_blocker(self, draft: InProgress) -> str | None:
        reader, snapshot = self.reader, self.next
        if draft.tasks:
            recorded = stored_plan(self.workspace.storage, self._folder(draft))
            if recorded is None or not {*Entry._fields}.issubset(recorded[0].file.schema().names):
                return "an older version recorded its plan in another form"
        return draft.blocker(
            self.request.identity,
            snapshot,
            self._end_ts_of(snapshot) if snapshot else None,
            plan.newest_of(reader, self.workspace.source),
            reader.rows("latest_prune", source=self.workspace.source)[0],
            lambda candidate: counted(self.request, candidate.units, self._session),
        )

    def matches_request(self, draft: InProgress) -> bool:
        """Return whether this command is the one that the draft's run was started with."""
        return self.next is not None and draft.is_requested(
            self.request.identity, self.next, self._end_ts_of(self.next)
        )

    def copy(self, draft: InProgress) -> Totals:
        request, work, amount = self.request, self.workspace, draft.amount
        work.choose_runner(request, of_files(amount.cost))
        work.reporter.start(amount.copies, amount.copy_bytes, "backup", "files")
        totals = self._run_tasks(draft) if draft.tasks else Totals()
        work.reporter.update(amount.copies, amount.copy_bytes)
        if totals.entries != amount.copies:
            raise Damaged(
                f"Backup {draft.backup_id} was to copy {amount.copies} files, and has "
                f"{totals.entries}: what was written of its work is not complete.",
                hint="Nothing of it is visible. Run the same command again: it starts over.",
            )
        return totals

    def _run_tasks(self, draft: InProgress) -> Totals:
        request, work = self.request, self.workspace
        recorded = stored_plan(work.storage, self._folder(draft))
        if recorded is None:
            raise Damaged(
                f"The plan of backup {draft.backup_id} is gone.",
                hint="Run the same command again: it starts over.",
            )
        shares, _ = recorded
        key = None
        if self.encryption is not None and draft.amount.copies:
            key = self.encryption.stored_key(work.storage, work.source, draft.backup_id)
        job = CopyJob(
            uri=work.storage.uri,
            destination=work.destination,
            source=work.source,
            backup_id=draft.backup_id,
            number=draft.number,
            level=draft.level,
            parent=draft.parent,
            key=key,
            key_ids=tuple(data_keys.key_ids(work.storage, work.source, draft.backup_id)) if key else (),
            plan=shares,
            pack_below=draft.pack_below,
            codec=draft.codec,
        )
        max_parallel = min(draft.tasks, request.parallelism)
        return run_tasks(work, job, shares.numbers, max_tasks=max_parallel if request.bandwidth else None)

    def manifest(self, draft: InProgress, totals: Totals) -> Manifest:
        return manifest_of(
            self.workspace,
            draft,
            totals,
            draft.tables,
            draft.tasks,
            kind=draft.kind,
            level=draft.level,
            parent=draft.parent,
            end_ts=draft.end_ts,
            codec="null" if draft.codec == "none" else "zstd",
            note=self.request.note,
        )

    def discard(self, draft: InProgress) -> int:
        return self.workspace.empty(layout.snapshot_folder(self.workspace.source, draft.backup_id))

    def finish(self, draft: InProgress) -> None:
        work = self.workspace
        reader = work.reader()
        if self.encryption is not None:
            self._warn_of_files_in_clear(reader)
        try:
            export_manifest(reader, work.storage, draft.backup_id)
        except LakebackupError as error:  # the backup itself is complete
            work.reporter.warning(
                f"the manifest for other tools could not be written beside backup {draft.backup_id}: "
                f"{error.message} Write it with `lakebackup catalog manifest`"
            )
        clear(work.storage, self._folder(draft))

    def _warn_of_files_in_clear(self, reader: CatalogReader) -> None:
        (row,) = reader.rows("snapshot_in_clear", source=self.workspace.source)
        if row["files"]:
            self.workspace.reporter.warning(
                f"{row['files']} files of this backup are not encrypted, since an earlier backup stored them "
                "in clear and they did not change; --mode full stores them again"
            )

    def result(self, draft: InProgress, backup: Backup) -> dict[str, Any]:
        return {
            "backup_id": draft.backup_id,
            "source": backup.source,
            "snapshot": draft.snapshot,
            "kind": draft.kind,
            "parent": draft.parent,
            "end_ts": draft.end_ts,
            **_summary(draft.amount),
            "objects": backup.files,
            "stored_bytes": backup.bytes,
            "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
        }

    def _folder(self, draft: InProgress) -> str:
        return layout.backup_folder(self.workspace.source, draft.backup_id)

    def _session(self) -> SparkSession:
        return self.workspace.spark

    def _compare(self, snapshot: Snapshot, reader: CatalogReader) -> Comparison:
        work = self.workspace
        comparison = compare(self.request, work.source, snapshot, reader, self._session)
        for name in comparison.unlike:
            work.reporter.warning(
                f"{name} has the size and time of the stored file but different contents: it is copied again"
            )
        return comparison

    def choose(self, newest: Newest | None) -> list[Snapshot]:
        """Return the requested snapshots, oldest first."""
        request = self.request
        snapshots = plan.choose(
            self._snapshots, ids=request.snapshots, everything=request.everything, newest=newest
        )
        if request.taken_at is not None and len(snapshots) > 1:
            raise UsageProblem("--taken-at is for one snapshot.", hint="Name it with --snapshot.")
        return snapshots

    def _require_time(self, snapshot: Snapshot, newest: Newest | None) -> None:
        """Raises UsageProblem when a snapshot's time, from --taken-at or the layout, cannot be right."""
        label, end_ts = _label(snapshot), self._end_ts_of(snapshot)
        if self.request.taken_at is not None:
            plan.require_past(label, end_ts, self._start_ms)
        if self.request.taken_at is not None or self._layout.has_snapshot:
            plan.require_later(self.workspace.source, label, end_ts, newest)

    def _end_ts_of(self, snapshot: Snapshot) -> int:
        """Return the instant that a backup of a snapshot restores to, in ms since 1970 UTC."""
        if self.request.taken_at is not None:
            return self.request.taken_at
        return snapshot.taken_ms if self._layout.has_snapshot else self._start_ms


def manifest_of(
    workspace: Workspace,
    draft: Draft,
    totals: Totals,
    tables: Mapping[str, int],
    parts: int,
    **columns: Any,
) -> Manifest:
    """Build the manifest of a backup.

    `tables`: the number of regions by table. `columns`: further columns of the row of `backups`.
    """
    backup = backup_row(
        workspace,
        draft,
        totals,
        None,
        source_kind=SNAPSHOT,
        isolation="-",
        **columns,
    )
    scopes = [
        Scope(
            backup_id=draft.backup_id,
            source=workspace.source,
            scope=scope,
            epoch="-",
            regions=regions,
            settings="{}",
            replication=1,
        )
        for scope, regions in tables.items()
    ]
    return Manifest(backup=backup, positions=(), scopes=scopes, gaps=(), parts=parts)


def _label(snapshot: Snapshot) -> str:
    return f"Snapshot {snapshot.id}" if snapshot.id else "The snapshot"


def _summary(amount: plan.Amount) -> dict[str, Any]:
    changes = amount.changes
    return {
        "files": amount.listed,
        "bytes": amount.listed_bytes,
        "copied": amount.copies,
        "copied_bytes": amount.copy_bytes,
        **{name: changes.get(name, 0) for name in ("new", "changed", "again")},
        "unchanged": changes.get("unchanged", 0) + changes.get("touched", 0),
        "gone": changes.get("gone", 0),
    }
