"""Back up a snapshot: list its files, compare them with the newest backup's, copy what is new, publish.

Order of publishing: objects, their rows as manifest parts, the manifest, the rows of the catalog, the one
`backups` row, which alone makes the backup exist, then its marker. Little work is done in this process; Spark
is asked when there are many files to list, to compare or to copy.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from lakebackup import requests
from lakebackup.errors import Damaged, LakebackupError, Refused, UsageProblem
from lakebackup.formats.snapshots.manifest_json import export_manifest
from lakebackup.formats.snapshots.tree import layout_of
from lakebackup.plan.snapshots import backup as plan
from lakebackup.rows.backups import Backup, Scope
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import Storage, open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import OUTCOME, Totals
from lakebackup_jobs.snapshots import resume as begin
from lakebackup_jobs.snapshots.compare import Comparison, compare, counted
from lakebackup_jobs.snapshots.consistency_check import require_kept
from lakebackup_jobs.snapshots.find import find, root_of
from lakebackup_jobs.snapshots.resume import Begun
from lakebackup_jobs.snapshots.splits import ShareWriter
from lakebackup_jobs.snapshots.tasks.copy import CopyJob
from lakebackup_jobs.snapshots.tasks.list import list_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.snapshots.backup import Newest, Role, Snapshot
    from lakebackup_jobs.lifecycle.progress import Reporter

ALWAYS = ("CURRENT", "MANIFEST-*")
PACK_BELOW = 1 << 20
# Fewer files keep their own names in the destination, where a person finds them.
_PACK_FROM = 64


# What makes two requests the same backup: these, what is added to requests later, and none of _ELSE.
_SAME = (
    "layout", "mode", "pack_below", "verify_unchanged", "find_same", "taken_at", "note", "paths", "always",
    "sidecars",
)  # fmt: skip
# Places, how fast it is done, and which snapshots are: each is a backup of its own.
_ELSE = (
    "destination", "catalog", "source", "remote", "lease_ttl_s", "parallelism", "bandwidth", "dry_run",
    "snapshots", "everything",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What a person asked for. `paths`: trees of one layout. `snapshots`: ids; none: the newest, or with
    `everything` all that came since the newest backup. `always`: patterns of last path parts. `pack_below` in
    bytes; `bandwidth` in bytes a second; `taken_at` in ms since 1970 UTC."""

    destination: str
    paths: tuple[str, ...]
    catalog: str | None = None
    source: str | None = None
    layout: str = "plain"
    snapshots: tuple[str, ...] = ()
    everything: bool = False
    always: tuple[str, ...] = ALWAYS
    pack_below: int = PACK_BELOW
    mode: Literal["auto", "full"] = "auto"
    verify_unchanged: bool = False
    find_same: bool = False
    sidecars: tuple[tuple[Role, str], ...] = ()
    bandwidth: int | None = None
    taken_at: int | None = None
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    note: str | None = None
    remote: str | None = None
    parallelism: int = os.cpu_count() or 2

    @property
    def asked(self) -> dict[str, Any]:
        """What makes two requests the same backup."""
        kept = requests.asked(self, always=_SAME, never=_ELSE)
        return {**kept, "paths": [str(root_of(path)) for path in self.paths]}


def run(request: SnapshotRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Take a backup of each snapshot asked for; returns what a person wants to know of them.

    Raises NotFound (path, snapshot), UsageProblem (layout, a snapshot older than the newest backup), Refused
    (a symbolic link, a file that changed meanwhile, a prune that was cut off, a catalog without the backups
    that are there), Busy (another run on the source), EnvironmentProblem, Damaged.
    """
    if not request.paths:
        raise UsageProblem("Missing PATH: where is the snapshot?", hint="Name a folder.")
    source = layout.check_source(request.source or root_of(request.paths[0]).name)
    storage = open_storage(request.destination)
    run = _Run(request, storage, source, spark, reporter)
    if request.dry_run:
        return run.foresee()
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        return run.take_all(lease)


class _Run:
    """One run on its way."""

    def __init__(
        self,
        request: SnapshotRequest,
        storage: Storage,
        source: str,
        spark: SparkSession | None,
        reporter: Reporter,
    ) -> None:
        self.request, self.storage, self.source, self.reporter = request, storage, source, reporter
        self._spark = spark
        self._layout = layout_of(request.layout)
        self._began_ms = time.time_ns() // 1_000_000
        self._snapshots = find(request.paths, self._layout, request.sidecars)

    @property
    def spark(self) -> SparkSession:
        """The session, made when it is first needed."""
        if self._spark is None:
            from lakebackup_jobs.runtime.session import spark_session

            self._spark = spark_session(remote=self.request.remote)
        return self._spark

    def foresee(self) -> dict[str, Any]:
        """What would be done; nothing is written."""
        reader = CatalogReader.open(self.request.destination, self.request.catalog)
        newest = self._newest(reader) if reader else None
        chosen = self._chosen(newest)
        told: dict[str, Any] = {"dry_run": True, "source": self.source, "snapshots": [s.id for s in chosen]}
        if not chosen:
            return told
        plan.require_later(self.source, chosen[0], self._taken(chosen[0]), newest)
        if reader is None:
            return {**told, **_summary(self._first(chosen[0]))}
        with compare(self.request, self.source, chosen[0], reader, lambda: self.spark) as found:
            self._warn(found)
            return {**told, **_summary(found.amount)}

    def _first(self, snapshot: Snapshot) -> plan.Amount:
        """What a first backup copies, at most: all."""
        files = size = 0
        for batch in list_units(snapshot.units, ()):
            files += len(batch)
            size += sum(batch.column("bytes").to_pylist())
        return plan.Amount({"new": files}, files, size, files, size, 0)

    def take_all(self, lease: Lease) -> dict[str, Any]:
        """Go on with what was cut off, then back up what was asked for."""
        self._writer(None).prepare()
        reader = self._reader()
        newest = self._newest(reader)
        require_kept(self.storage, self.source, reader)
        chosen = self._chosen(newest)
        made = []
        begun = begin.found(self.storage, self.source)
        if begun and reader.rows("find_backups", prefix=begun.backup_id):
            self._close(begun)
            self.reporter.note(f"backup {begun.backup_id} is whole; its run was cut off at the very end")
            if chosen and begun.same(self.request.asked, chosen[0], self._taken(chosen[0])):
                # Nobody was told that the work of the same command before is done.
                path = layout.manifest_path(self.source, begun.backup_id)
                made.append(_told(begun, sidecar.read_manifest(self.storage, path).backup))
                chosen = chosen[1:]
            begun = None
        elif begun and (why := self._hindrance(begun, chosen, newest, reader)):
            lease.renew()
            count = begin.take_away(self.storage, self.source, begun.backup_id)
            self.reporter.note(
                f"backup {begun.backup_id} was cut off and is not gone on with, since {why}; its {count} "
                "objects are taken away"
            )
            begun = None
        for number, snapshot in enumerate(chosen):
            if number == 0 and begun:
                self.reporter.note(f"going on with backup {begun.backup_id}, which was cut off")
                made.append(self._carry_out(begun, lease))
            else:
                reader = self._reader() if made else reader
                made.append(self._take(snapshot, reader, self._newest(reader), lease))
        if len(made) == 1:
            return made[0]
        return {"source": self.source, "backups": made}

    def _hindrance(
        self, begun: Begun, chosen: Sequence[Snapshot], newest: Newest | None, reader: CatalogReader
    ) -> str | None:
        """Why a backup that was cut off is not gone on with."""
        next_one = chosen[0] if chosen else None
        return begun.hindrance(
            self.request.asked,
            next_one,
            self._taken(next_one) if next_one else None,
            newest,
            reader.rows("latest_prune", source=self.source)[0],
            lambda snapshot: counted(self.request, snapshot.units, lambda: self.spark),
        )

    def _take(
        self, snapshot: Snapshot, reader: CatalogReader, newest: Newest | None, lease: Lease
    ) -> dict[str, Any]:
        """A backup of one snapshot."""
        request, now = self.request, datetime.now(UTC)
        taken = self._taken(snapshot)
        plan.require_later(self.source, snapshot, taken, newest)
        backup_id = layout.new_backup_id(now)
        folder = layout.backup_folder(self.source, backup_id)
        try:
            with compare(request, self.source, snapshot, reader, lambda: self.spark) as found:
                self._warn(found)
                amount = found.amount
                full = newest is None or request.mode == "full"
                begun = Begun(
                    backup_id=backup_id,
                    number=newest.number + 1 if newest else 1,
                    started_at=micros(now),
                    kind="full" if full else "differential",
                    parent=None if full or newest is None else newest.backup_id,
                    compared_with=newest.backup_id if newest else None,
                    pruned=reader.rows("latest_prune", source=self.source)[0],
                    snapshot=snapshot.id,
                    lasting=self._layout.has_snapshot,
                    end_ts=taken,
                    tables=snapshot.tables,
                    amount=amount,
                    tasks=amount.tasks(request.parallelism),
                    pack_below=request.pack_below if amount.small > _PACK_FROM else 0,
                    asked=request.asked,
                )
                begin.begin(self.storage, self.source, begun)
                found.deal(ShareWriter(self.storage.uri, folder), begun.tasks)
            begin.begin(self.storage, self.source, replace(begun, dealt=True))
        except BaseException:
            lease.renew()  # what is another run's by now stays
            begin.take_away(self.storage, self.source, backup_id)
            raise
        return self._carry_out(begun, lease)

    def _carry_out(self, begun: Begun, lease: Lease) -> dict[str, Any]:
        """Copy what has not been copied yet, and publish."""
        try:
            totals = self._copy(begun)
            if totals.entries != begun.amount.copies:
                raise Damaged(
                    f"Backup {begun.backup_id} was to copy {begun.amount.copies} files, and has "
                    f"{totals.entries}: what was put down of its work is not whole.",
                    hint="Nothing of it is visible. Run the same command again: it begins anew.",
                )
        except (Refused, Damaged):  # the snapshot, or what was put down of the work, is not what it was
            lease.renew()  # a run that slept may find that another one made the backup exist
            begin.take_away(self.storage, self.source, begun.backup_id)
            raise
        backup = self._row(begun, totals)
        manifest = sidecar.Manifest(
            backup=backup,
            positions=(),
            scopes=[_scope(begun, self.source, scope, count) for scope, count in begun.tables.items()],
            gaps=(),
            parts=begun.tasks,
        )
        lease.renew()
        sidecar.write_manifest(self.storage, layout.manifest_path(self.source, begun.backup_id), manifest)
        # A session is there when so much was done that the commit has a use for it.
        writer = self._writer(None if begun.amount.little else self.spark)
        writer.commit_backup(self.storage, manifest, held=lease)
        self._close(begun)
        return _told(begun, backup)

    def _copy(self, begun: Begun) -> Totals:
        request, totals, amount = self.request, Totals(), begun.amount
        at_once = 1 if amount.little else min(begun.tasks, request.parallelism)
        job = CopyJob(
            uri=self.storage.uri,
            destination=destination_id(self.storage),
            source=self.source,
            backup_id=begun.backup_id,
            number=begun.number,
            level=begun.level,
            parent=begun.parent,
            pack_below=begun.pack_below,
            rate=request.bandwidth / at_once if request.bandwidth else None,
        )
        self.reporter.start(amount.copies, amount.copy_bytes, "backup")
        with TaskBoard(self.storage, job.folder).watched(self.reporter.update):
            if amount.little:
                totals.add(SimpleNamespace(**job.run(task), error=None) for task in range(begun.tasks))
            else:
                # With a limit no more than share it may run, however large the cluster is.
                count = at_once if request.bandwidth else begun.tasks
                numbers = self.spark.range(0, begun.tasks, 1, count)
                with task_errors():
                    totals.add(numbers.mapInArrow(job, OUTCOME).collect())  # one row a task
        self.reporter.update(amount.copies, amount.copy_bytes)
        return totals

    def _close(self, begun: Begun) -> None:
        """What is left to do for a backup that exists."""
        sidecar.mark(self.storage, layout.marker_path(self.source, begun.backup_id, "complete"))
        try:
            export_manifest(self._reader(), self.storage, begun.backup_id)
        except LakebackupError as error:  # the backup is there all the same
            self.reporter.warning(
                f"the manifest of backup {begun.backup_id} for other tools is not beside it: {error.message} "
                "`lakebackup catalog manifest` makes one"
            )
        begin.end(self.storage, self.source, begun.backup_id)

    def _row(self, begun: Begun, totals: Totals) -> Backup:
        return Backup(
            backup_id=begun.backup_id,
            number=begun.number,
            source=self.source,
            source_kind=SNAPSHOT,
            destination=destination_id(self.storage),
            kind=begun.kind,
            level=begun.level,
            parent=begun.parent,
            base=begun.backup_id,
            chain_position=0,
            place=begun.number,
            parent_place=None,
            start_ts=None,
            end_ts=begun.end_ts,
            started_at=begun.started_at,
            **totals.columns(),
            isolation="-",
            codec="null",
            note=self.request.note,
        )

    def _warn(self, found: Comparison) -> None:
        for name in found.unlike():
            self.reporter.warning(
                f"{name} has the size and time of what is stored, and other contents: it is copied again"
            )

    def _chosen(self, newest: Newest | None) -> list[Snapshot]:
        request = self.request
        chosen = plan.choose(
            self._snapshots, ids=request.snapshots, everything=request.everything, newest=newest
        )
        if request.taken_at is not None and len(chosen) > 1:
            raise UsageProblem("--taken-at is for one snapshot.", hint="Name it with --snapshot.")
        return chosen

    def _taken(self, snapshot: Snapshot) -> int:
        """The instant that a backup of a snapshot restores to, ms since 1970 UTC."""
        if self.request.taken_at is not None:
            return self.request.taken_at
        return snapshot.taken_ms if self._layout.has_snapshot else self._began_ms

    def _newest(self, reader: CatalogReader) -> Newest | None:
        found = reader.one("snapshot_newest", source=self.source)
        newest = plan.Newest(**found) if found else None
        plan.require_snapshots(self.source, newest)
        return newest

    def _reader(self) -> CatalogReader:
        return CatalogReader(self.request.destination, self.request.catalog)

    def _writer(self, spark: SparkSession | None) -> CatalogWriter:
        return CatalogWriter.open(spark, self.request.destination, self.request.catalog)


def _scope(begun: Begun, source: str, scope: str, regions: int) -> Scope:
    return Scope(
        backup_id=begun.backup_id,
        source=source,
        scope=scope,
        epoch="-",
        regions=regions,
        settings="{}",
        replication=1,
    )


def _told(begun: Begun, backup: Backup) -> dict[str, Any]:
    """What a person wants to know of a backup that exists."""
    return {
        "backup_id": begun.backup_id,
        "source": backup.source,
        "snapshot": begun.snapshot,
        "kind": begun.kind,
        "parent": begun.parent,
        "end_ts": begun.end_ts,
        **_summary(begun.amount),
        "objects": backup.files,
        "stored_bytes": backup.bytes,
        "seconds": round((backup.finished_at - backup.started_at) / 1e6, 3),
    }


def _summary(amount: plan.Amount) -> dict[str, Any]:
    changes = amount.changes
    return {
        "files": amount.listed,
        "bytes": amount.listed_bytes,
        "copied": amount.copies,
        "copied_bytes": amount.copy_bytes,
        **{name: changes.get(name, 0) for name in ("new", "changed", "again", "unchanged", "gone")},
    }
