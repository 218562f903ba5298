"""Deletion by tombstone: what it names stops counting, then its objects are deleted, then it is done.

Each step may have been taken before, by a run that was interrupted.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, Incomplete, NotFound
from lakebackup.plan.upkeep.prune import leaving, snapshots_released
from lakebackup.rows.base import QUEUES
from lakebackup.rows.tables import spark_columns
from lakebackup.rows.upkeep import Audit, Hold
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.store import tombstones
from lakebackup.store.roots import destination_id
from lakebackup.store.tombstones import Chunk, Prune, RemovalReader, RemovalWriter
from lakebackup_jobs.lifecycle.deletion.task import KEYS_DELETED, DeleteKeys, DeleteObjects
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.tasks.errors import raise_first
from lakebackup_jobs.lifecycle.tasks.splits import MOST_TASKS
from lakebackup_jobs.lifecycle.tasks.task import run_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from lakebackup.storage import Storage
    from lakebackup.store.lease import Lease
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.lifecycle.workspace import Workspace

# Backups whose state one commit changes.
_STATES = 1000


@dataclass(frozen=True, slots=True)
class Left:
    """Objects that are left for a later run: restores read them, or they could not be deleted."""

    spared: int = 0
    failed: int = 0
    first: str = ""

    def __add__(self, other: Left) -> Left:
        return Left(self.spared + other.spared, self.failed + other.failed, self.first or other.first)

    def require_none(self, reporter: Reporter, result: dict[str, Any]) -> None:
        """Raises Incomplete, after the result was reported, when something is left."""
        if self.failed:
            reporter.result(result)
            raise Incomplete(
                f"{self.failed} files could not be deleted; they do not count any more, but are still there. "
                f"The first: {self.first}",
                hint="Remove the cause, then run the same command again: it resumes.",
            )
        if self.spared:
            reporter.result(result)
            raise Incomplete(
                f"{self.spared} files are read by a restore that has not finished; they do not count any "
                "more, but are still there.",
                hint="Run the same again when the restore is done.",
            )


def foreign_destinations(reader: CatalogReader, home: Storage) -> frozenset[str]:
    """Ids of the destinations that came with an import: another catalog wrote there, and its prune deletes.

    A catalog that lies in a destination is that one's own, and may delete what it got back by an import.
    """
    own: set[str] = set()
    if reader.catalog_uri == f"{home.uri}/{layout.CATALOG_FOLDER}":
        with suppress(NotFound):
            own.add(destination_id(home, create=False))
    details = [json.loads(row["detail"]) for row in reader.rows("imports_on_record")]
    return frozenset(name for detail in details for name in detail.get("destinations", ())) - own


@dataclass(frozen=True)
class Deletion:
    """Deletes what tombstones of a source name. `action`: what the audit log calls it; `spared`: the
    partitions (topic, epoch, number) whose objects stay for now."""

    workspace: Workspace
    action: str
    lease: Lease
    spared: Callable[[], frozenset[tuple[str, str, str]]]

    @cached_property
    def writer(self) -> CatalogWriter:
        """The catalog, to write to."""
        return self.workspace.writer()

    def run(self, plan: Callable[[], tuple[dict[str, Any], Prune | None]]) -> dict[str, Any]:
        """Complete what was interrupted, then delete what `plan` records; its summary with the outcome.

        Raises Incomplete, after the result was reported, when objects are left.
        """
        resumed, left = self.resume()
        summary, recorded = plan()
        if recorded:
            left += self.carry_out(recorded)
        done = {"deleted": True, "prune_id": recorded.prune_id if recorded else None, "resumed": resumed}
        result = self.workspace.timed({**done, **summary})
        left.require_none(self.workspace.reporter, result)
        return result

    def resume(self) -> tuple[int, Left]:
        """Complete interrupted deletions; how many. Objects of those that never came to exist are deleted."""
        storage, source = self.workspace.storage, self.workspace.source
        left, resumed = Left(), 0
        tombstones.discard_unrecorded(storage, source)
        for name in tombstones.incomplete(storage):
            found = tombstones.read_prune(storage, name)
            if found.source == source:
                self.workspace.reporter.note(f"resuming {self.action} {name}, which did not finish")
                left += self.carry_out(found)
                resumed += 1
        return resumed, left

    def record(self, prune: Prune, rows: DataFrame, files: int, prove: Callable[[], None]) -> Prune:
        """Write the removals, prove that what stays can be restored, and write `prune.json`.

        `prune` is without chunks. `prove` finds the rows' destination and path in the view `doomed`, and
        raises Refused. Before the last step the prune does not exist: when one fails, its removals are
        deleted.
        """
        try:
            recorded = replace(prune, chunks=self._write_removals(rows, prune.prune_id, files))
            removals = self._read_removals(recorded.chunks).select("destination", "path")
            removals.createOrReplaceTempView("doomed")
            prove()
            self.lease.renew()
            tombstones.write_prune(self.workspace.storage, recorded)
        except Exception:
            self.workspace.empty(layout.prune_folder(prune.prune_id))
            raise
        return recorded

    def _write_removals(self, rows: DataFrame, prune_id: str, files: int) -> tuple[Chunk, ...]:
        """Write rows of removals beside the data, the newest backups' in the first of the chunks."""
        count = min(MOST_TASKS, 1 + files // tombstones.CHUNK_ROWS)
        if count > 1:
            rows = rows.repartitionByRange(count, rows.backup_id.desc(), rows.path.desc())
        else:
            rows = rows.coalesce(1)
        with task_errors():
            written = rows.mapInArrow(
                RemovalWriter(self.workspace.storage.uri, prune_id), tombstones.WRITTEN
            ).collect()  # a row for each 20,000 files
        return tuple(Chunk(row.path, row.files, row.bytes, row.sha256) for row in written)

    def _read_removals(self, chunks: tuple[Chunk, ...]) -> DataFrame:
        reader = RemovalReader(self.workspace.storage.uri, chunks)
        return reader.over(self.workspace.spark, range(len(chunks)), spark_columns("removals"))

    def carry_out(self, prune: Prune) -> Left:
        """All steps after `prune.json`, each of which may have been taken before; which objects stay.

        Raises Busy, before the first of them, when a restore of an engine's queues is on record.
        """
        name = f"prune-{prune.prune_id}"
        # A catalog that was rebuilt has them in commits of other names.
        reader = self.workspace.reader()
        (there,) = reader.rows("prune_on_record", prune_id=prune.prune_id)
        if prune.backups:
            self._require_unread(prune, reader)
        if not there["floors"]:
            self.writer.append(prune.floors, f"{name}-floors")
        self._mark_deleted(prune, reader)
        self._release(prune)
        if prune.chunks and not there["removals"]:
            self.writer.append_frame("removals", self._read_removals(prune.chunks), name)
        detail = {"files": prune.files, "bytes": prune.bytes, "partitions": len(prune.floors)}
        detail |= {"backups": len(prune.backups)}
        self.writer.append_audit(
            Audit(
                at=prune.at,
                actor=prune.actor,
                action=self.action,
                subject=prune.prune_id,
                detail=json.dumps({"source": prune.source, **detail, **json.loads(prune.asked)}),
            ),
            prune.prune_id.rpartition("-")[2],
        )
        self.lease.renew()
        # Only now: a restore that comes on record later does not plan with these files any more.
        left = self._delete(prune, self.spared())
        if not left.spared and not left.failed:
            tombstones.finish(self.workspace.storage, prune.prune_id)
        return left

    def _require_unread(self, prune: Prune, reader: CatalogReader) -> None:
        """Raise Busy while a restore of an engine is on record: it reads files of the whole chain, of any
        topic, and the snapshot beneath. One that starts later finds `prune.json`, and leaves these out."""
        kinds = {row["source_kind"] for row in reader.rows("source_kinds", source=prune.source)}
        if QUEUES in kinds and self.spared():
            raise Busy(
                f"A restore of {prune.source} has not finished, and {self.action} {prune.prune_id} deletes "
                "backups that it may read.",
                hint="Run the same command again when the restore is done. One that is given up blocks this "
                "for 7 days.",
            )

    def _mark_deleted(self, prune: Prune, reader: CatalogReader) -> None:
        """Set the state of backups that are deleted whole, each with its entry in the audit log."""
        gone = {row["backup_id"] for row in reader.rows("deleted_backups", source=prune.source)}
        still = [(name, reason) for name, reason in prune.backups if name not in gone]
        for reason, some in groupby(still, key=itemgetter(1)):
            names = [name for name, _ in some]
            for first in range(0, len(names), _STATES):
                self.lease.renew()
                self.writer.set_states(
                    names[first : first + _STATES],
                    "deleted",
                    actor=prune.actor,
                    reason=f"{self.action} {prune.prune_id}: {reason}",
                )

    def _release(self, prune: Prune) -> None:
        """Release the holds on an engine's snapshots that only deleted fulls depended on."""
        if not prune.backups:
            return
        reader = self.workspace.reader()
        reader.give("leaving", leaving(prune.backups))
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
                f"backup {backup_id} of {row.source} is held no more: no full of {prune.source} depends on it"
            )

    def _delete(self, prune: Prune, spared: frozenset[tuple[str, str, str]]) -> Left:
        from lakebackup.sql_engine.spark import SparkEngine

        reader = self.workspace.reader()
        roots = reader.destinations()
        folder = layout.prune_folder(prune.prune_id)
        foreign = foreign_destinations(reader, self.workspace.storage)
        job = DeleteObjects(self.workspace.storage.uri, folder, roots, prune.chunks, spared, foreign)
        self.workspace.reporter.start(prune.files, prune.bytes, self.action, "files")
        with self.workspace.task_progress(folder).watched(self.workspace.reporter.update), task_errors():
            rows = run_all(job, range(len(prune.chunks)), self.workspace.spark, MOST_TASKS)
            engine = SparkEngine(self.workspace.spark, self.writer.catalog_uri)
            filters = engine.query("unused_key_filters", prune_id=prune.prune_id)
            gone = filters.mapInArrow(DeleteKeys(roots, foreign), KEYS_DELETED).collect()  # a row a batch
        raise_first(row.error for row in gone)
        self.workspace.reporter.update(prune.files, prune.bytes)
        if kept := sum(row.foreign for row in rows):
            self.workspace.reporter.note(
                f"{kept} files stay: their destinations came with an import, and only the catalog that wrote "
                "them deletes there"
            )
        return sum((Left(row.spared, row.failed, row.first or "") for row in rows), Left())
