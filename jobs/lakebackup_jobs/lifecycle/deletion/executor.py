"""Deletion by tombstone: the files that a tombstone names stop counting, then their objects are deleted, then
the tombstone is finished.

An interrupted run may have taken any of these steps before, so each can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.errors import Busy, Incomplete, NoPermission
from lakebackup.plan.upkeep.prune import Statement, leaving, snapshots_released
from lakebackup.rows.backups import Floor
from lakebackup.rows.base import QUEUES
from lakebackup.rows.tables import ARROW_SCHEMAS, spark_columns
from lakebackup.rows.upkeep import Audit, Hold
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import Storage
from lakebackup.store import tombstones, trust
from lakebackup.store.caller import OK
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.tombstones import Chunk, Prune, RemovalReader, WriteRemovals
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.deletion.task import (
    KEYS_DELETED,
    DeleteDataKeys,
    DeleteKeys,
    DeleteObjects,
)
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.keyring import has_keys
from lakebackup_jobs.lifecycle.tasks.errors import raise_first
from lakebackup_jobs.lifecycle.tasks.plan_shares import MOST_TASKS
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace

# Up to this many rows in the catalog's tables of files, this process deletes, without Spark.
_MOST_LOCAL_ROWS = 100_000
# A name that no object has.
_NO_OBJECT = "none"
# The most backups whose state one commit changes.
_STATES_PER_COMMIT = 1000


def is_large(reader: CatalogReader) -> bool:
    """Whether a catalog has so many rows of files that Spark does the deletion."""
    return reader.count("files", "snapshot_files") > _MOST_LOCAL_ROWS


@dataclass(frozen=True, slots=True)
class Remaining:
    """The objects that remain for a later run: `spared` for restores that read them, or `failed` to be
    deleted; `first` is the first error."""

    spared: int = 0
    failed: int = 0
    first: str = ""

    def __add__(self, other: Remaining) -> Remaining:
        return Remaining(self.spared + other.spared, self.failed + other.failed, self.first or other.first)

    def require_none(self, result: dict[str, Any]) -> None:
        """Raise Incomplete, with the result, when any object remains."""
        if self.failed:
            raise Incomplete(
                f"{self.failed} files could not be deleted; they do not count any more, but are still there. "
                f"The first: {self.first}",
                hint="Remove the cause, then run the same command again: it resumes.",
            ).with_result(result)
        if self.spared:
            raise Incomplete(
                f"{self.spared} files are read by a restore that has not finished; they do not count any "
                "more, but are still there.",
                hint="Run the same again when the restore is done.",
            ).with_result(result)


def foreign_destinations(reader: CatalogReader, home: Storage) -> frozenset[str]:
    """The ids of the destinations in which this run deletes nothing: all except its own repository and those
    that this machine's settings name. A row of the catalog could name any place as a destination."""
    own = {home.uri} | trust.local().delete_in
    return frozenset(name for name, uri in reader.destinations().uris.items() if uri not in own)


class DeletionPlan(Protocol):
    """What a prune or a truncate deletes: a value that holds no engine."""

    @property
    def source(self) -> str: ...
    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""

    @property
    def removals(self) -> Statement:
        """The query of the objects to delete, those of the newest backups first, as rows of removals without
        the prune."""

    def with_relations(self, reader: CatalogReader, /) -> CatalogReader:
        """The catalog with the relations that the query reads."""

    @property
    def whole_backups(self) -> tuple[tuple[str, str], ...]:
        """The id of each backup that is deleted completely, and the reason, before those that it depends
        on."""

    def floors(self, prune_id: str, time_us: int, /) -> Sequence[Floor]:
        """The rows that record from which position partitions can be restored afterwards."""

    def require_proof(self, reader: CatalogReader, /) -> None:
        """Raise Refused when what stays would lose what it needs. `reader` has the relation `doomed`: the
        destinations and paths of the objects to delete."""


@dataclass(frozen=True)
class Deletion:
    """Deletes what the tombstones of a source name. `action`: its name in the audit log. `spared` returns the
    partitions (topic, epoch, number) whose objects stay for now."""

    workspace: Workspace
    action: str
    lease: Lease
    spared: Callable[[], frozenset[tuple[str, str, str]]]

    @cached_property
    def spark(self) -> SparkSession | None:
        """The session that deletes, if the catalog is large; None: this process deletes."""
        work = self.workspace
        return work.spark if is_large(work.reader()) else None

    @cached_property
    def writer(self) -> CatalogWriter:
        """The writer of the catalog."""
        return self.workspace.writer(in_process=self.spark is None)

    def run(self, record: Callable[[], tuple[dict[str, Any], Prune | None]]) -> dict[str, Any]:
        """Complete interrupted deletions, then carry out the prune that `record` records. Returns the plan's
        summary with the outcome.

        Raises NoPermission, before anything is done, if this account may not delete; Incomplete, with the
        result, if objects remain.
        """
        self._require_right()
        resumed, remaining = self.resume()
        summary, prune = record()
        if prune:
            remaining += self.carry_out(prune)
        status = {"deleted": True, "prune_id": prune.prune_id if prune else None, "resumed": resumed}
        result = self.workspace.timed({**status, **summary})
        remaining.require_none(result)
        return result

    def _require_right(self) -> None:
        """Check the right to delete: delete an object that does not exist, which needs the same right."""
        storage = self.workspace.storage
        try:
            storage.delete(layout.source_folder(self.workspace.source) + _NO_OBJECT)
        except NoPermission as error:
            raise NoPermission(
                f"This account may not delete what {self.action} would: nothing was done. {error.message}",
                hint=error.hint,
            ) from error

    def resume(self) -> tuple[int, Remaining]:
        """Complete interrupted deletions. Returns their number, and the objects that remain. Objects of
        deletions without `prune.json` are deleted."""
        storage, source = self.workspace.storage, self.workspace.source
        remaining, resumed = Remaining(), 0
        tombstones.discard_unrecorded(storage, source)
        for name in tombstones.incomplete(storage):
            prune = tombstones.read_prune(storage, name)
            if prune.source == source:
                self.workspace.reporter.note(f"resuming {self.action} {name}, which did not finish")
                remaining += self.carry_out(prune)
                resumed += 1
        return resumed, remaining

    def reader(self) -> CatalogReader:
        """The catalog as it is now, on the engine that deletes."""
        reader = self.workspace.reader()
        return reader.with_spark(self.spark) if self.spark else reader

    def record(self, plan: DeletionPlan, request: Mapping[str, Any], *leases: Lease) -> Prune | None:
        """Write the removals, prove that what stays can be restored, and write `prune.json`.

        Returns the recorded prune; None if the plan is empty. `request`: the options, for the audit log.
        `leases`: further leases that the run must still hold. The prune exists only after the last step: when
        an earlier one fails, the removals are deleted. Raises Refused, Busy.
        """
        if plan.is_empty:
            return None
        storage, started = self.workspace.storage, datetime.now(UTC)
        prune_id, time_us = layout.new_backup_id(started), micros(started)
        try:
            chunks = self._write_removals(plan, WriteRemovals(storage.uri, prune_id, time_us))
            plan.require_proof(self._with_doomed(chunks))
            for lease in (*leases, self.lease):
                lease.renew()
            prune = Prune(
                prune_id=prune_id,
                at=time_us,
                actor=holder(),
                source=plan.source,
                asked=json.dumps(request),
                floors=tuple(plan.floors(prune_id, time_us)),
                chunks=chunks,
                backups=plan.whole_backups,
            )
            tombstones.write_prune(storage, prune)
        except Exception:
            self.workspace.empty(layout.prune_folder(prune_id))
            raise
        return prune

    def _write_removals(self, plan: DeletionPlan, job: WriteRemovals) -> tuple[Chunk, ...]:
        """Write the objects to delete. The rows of a large catalog are written by the tasks that choose
        them."""
        name, parameters = plan.removals
        rows = plan.with_relations(self.reader()).map(job, job.COLUMNS, name, **parameters)
        return tuple(Chunk(**row) for row in rows)

    def _with_doomed(self, chunks: tuple[Chunk, ...]) -> CatalogReader:
        """The catalog with the relation `doomed`: the objects to delete, as they were written."""
        columns, reader = ["destination", "path"], self.reader()
        removals = RemovalReader(self.workspace.storage.uri, chunks)
        if self.spark:
            rows = removals.over(self.spark, range(len(chunks)), spark_columns("removals"))
            return reader.with_rows("doomed", rows.select(*columns))
        schema = pa.schema([ARROW_SCHEMAS["removals"].field(name) for name in columns])
        batches = [rows.select(columns) for number in range(len(chunks)) for rows in removals.rows(number)]
        return reader.with_rows("doomed", pa.Table.from_batches(batches, schema))

    def carry_out(self, prune: Prune) -> Remaining:
        """Sign a prune, and take all steps after `prune.json`, each of which may have been taken before.

        Returns the objects that remain. Raises Busy, before the first step, if a restore of an engine's
        queues is recorded as running.
        """
        name = f"prune-{prune.prune_id}"
        self.workspace.sign("deletion", prune.prune_id, layout.prune_path(prune.prune_id))
        # Looks for the rows themselves: in a rebuilt catalog, they are in commits with other names.
        reader = self.workspace.reader()
        (on_record,) = reader.rows("prune_on_record", prune_id=prune.prune_id)
        if prune.backups:
            self._require_unread(prune, reader)
        if not on_record["floors"]:
            self.writer.append(prune.floors, f"{name}-floors")
        self._mark_deleted(prune, reader)
        self._release(prune)
        if prune.chunks and not on_record["removals"]:
            rows = RemovalReader(self.workspace.storage.uri, prune.chunks)
            self.writer.append_read("removals", rows, len(prune.chunks), name)
        detail = {"files": prune.files, "bytes": prune.bytes, "partitions": len(prune.floors)}
        detail |= {"backups": len(prune.backups)}
        self.writer.append_audit(
            Audit(
                at=prune.at,
                actor=prune.actor,
                action=self.action,
                subject=prune.prune_id,
                detail=json.dumps({"source": prune.source, **detail, **object_of(prune.asked)}),
                outcome=OK,
            ),
            prune.prune_id.rpartition("-")[2],
        )
        self.lease.renew()
        # `spared` is read only now: a restore that is recorded later does not plan with these files any more.
        remaining = self._delete(prune, self.spared())
        if not remaining.spared and not remaining.failed:
            self._delete_data_keys(prune)
            tombstones.finish(self.workspace.storage, prune.prune_id)
        return remaining

    def _require_unread(self, prune: Prune, reader: CatalogReader) -> None:
        """Raise Busy while a restore of an engine is recorded as running: it may read any file of the chain,
        and the snapshot below it. A restore that starts later finds `prune.json`, and does not use these
        backups."""
        kinds = {row["source_kind"] for row in reader.rows("source_kinds", source=prune.source)}
        if QUEUES in kinds and self.spared():
            raise Busy(
                f"A restore of {prune.source} has not finished, and {self.action} {prune.prune_id} deletes "
                "backups that it may read.",
                hint="Run the same command again when the restore is done. One that is given up blocks this "
                "for 7 days.",
            )

    def _mark_deleted(self, prune: Prune, reader: CatalogReader) -> None:
        """Set the state of backups that are deleted as a whole, each with an entry in the audit log."""
        deleted_ids = {row["backup_id"] for row in reader.rows("deleted_backups", source=prune.source)}
        pending = [(name, reason) for name, reason in prune.backups if name not in deleted_ids]
        for reason, group in groupby(pending, key=itemgetter(1)):
            names = [name for name, _ in group]
            for start in range(0, len(names), _STATES_PER_COMMIT):
                self.lease.renew()
                self.writer.set_states(
                    names[start : start + _STATES_PER_COMMIT],
                    "deleted",
                    actor=prune.actor,
                    reason=f"{self.action} {prune.prune_id}: {reason}",
                )

    def _release(self, prune: Prune) -> None:
        """Release the holds on an engine's snapshots on which only deleted fulls depended."""
        if not prune.backups:
            return
        reader = self.workspace.reader().with_rows("leaving", leaving(prune.backups))
        for backup_id in snapshots_released(reader, prune.source):
            row = Hold(
                backup_id=backup_id,
                source=layout.snapshot_source(prune.source),
                at=micros(datetime.now(UTC)),
                actor=prune.actor,
                reason=f"no full of {prune.source} depends on it any more: {self.action} {prune.prune_id}",
                released=True,
            )
            self.writer.record(row)
            self.workspace.reporter.note(
                f"backup {backup_id} of {row.source} is no longer held: no full of {prune.source} needs it"
            )

    def _delete_data_keys(self, prune: Prune) -> None:
        """Delete the data keys of deleted backups that no stored file needs any more. Raises what the storage
        raises; the next run goes on then."""
        reader = self.reader().with_rows("leaving", leaving(prune.backups))
        if not has_keys(reader):
            return
        job = DeleteDataKeys(reader.destinations(), foreign_destinations(reader, self.workspace.storage))
        raise_first(
            row["error"] for row in reader.map(job, KEYS_DELETED, "unused_data_keys", prune_id=prune.prune_id)
        )

    def _delete(self, prune: Prune, spared: frozenset[tuple[str, str, str]]) -> Remaining:
        reader, work = self.reader(), self.workspace
        roots = reader.destinations()
        folder = layout.prune_folder(prune.prune_id)
        foreign = foreign_destinations(reader, work.storage)
        job = DeleteObjects(work.storage.uri, folder, roots, prune.chunks, spared, foreign)
        work.reporter.start(prune.files, prune.bytes, self.action, "files")
        with work.task_progress(folder).watched(work.reporter.update), task_errors():
            rows = run_all(job, range(len(prune.chunks)), self.spark, MOST_TASKS)
            # The driver gets one row for each batch.
            key_deletions = reader.map(
                DeleteKeys(roots, foreign), KEYS_DELETED, "unused_key_filters", prune_id=prune.prune_id
            )
        raise_first(row["error"] for row in key_deletions)
        work.reporter.update(prune.files, prune.bytes)
        if count := sum(row.foreign for row in rows):
            work.reporter.note(
                f"{count} files were not deleted: they are in other repositories, where this machine may not "
                "delete. To allow it, name them as delete_in under [approved] in lakebackup.toml."
            )
        return sum((Remaining(row.spared, row.failed, row.first or "") for row in rows), Remaining())
