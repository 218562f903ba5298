"""The steps after a tombstone: what it names does not count any more, then its objects go, then it is done.

Each step may have been taken before, by a run that was cut off.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.tombstones import Chunk, Prune, RemovalReader, RemovalWriter
from lakebackup_jobs.lifecycle.deletion.task import DELETED, KEYS_DELETED, DeleteKeys, DeleteObjects
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.tasks.errors import raise_first
from lakebackup_jobs.lifecycle.tasks.progress import TaskBoard
from lakebackup_jobs.lifecycle.tasks.splits import MOST_TASKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.storage import Storage
    from lakebackup.store.lease import Lease
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.progress import Reporter

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
        """Raises Incomplete, after the result was told, when something is left."""
        if self.failed:
            reporter.result(result)
            raise Incomplete(
                f"{self.failed} files could not be deleted; they do not count any more, but are still there. "
                f"The first: {self.first}",
                hint="See to that, then run the same again: it goes on.",
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


@dataclass(frozen=True, slots=True)
class Removing:
    """Takes away what tombstones of a source name. `action`: what the audit log calls it; `spared`: the
    partitions (topic, epoch, number) whose objects stay for now."""

    destination: str
    catalog: str | None
    storage: Storage
    source: str
    action: str
    lease: Lease
    spark: SparkSession
    writer: CatalogWriter
    reporter: Reporter
    spared: Callable[[], frozenset[tuple[str, str, str]]]

    def resume(self) -> tuple[int, Left]:
        """Go on with what was cut off; how much that was. What died before it came to exist is swept up."""
        left, resumed = Left(), 0
        tombstones.sweep(self.storage, self.source)
        for name in tombstones.unfinished(self.storage):
            found = tombstones.read_prune(self.storage, name)
            if found.source == self.source:
                self.reporter.note(f"going on with {self.action} {name}, which did not finish")
                left += self.carry_out(found)
                resumed += 1
        return resumed, left

    def put_down(self, rows: DataFrame, prune_id: str, files: int) -> tuple[Chunk, ...]:
        """Write rows of removals beside the data, the newest backups' in the first of the chunks."""
        count = min(MOST_TASKS, 1 + files // tombstones.CHUNK_ROWS)
        if count > 1:
            rows = rows.repartitionByRange(count, rows.backup_id.desc(), rows.path.desc())
        else:
            rows = rows.coalesce(1)
        with task_errors():
            written = rows.mapInArrow(
                RemovalWriter(self.storage.uri, prune_id), tombstones.WRITTEN
            ).collect()  # a row for each 20,000 files
        return tuple(Chunk(row.path, row.files, row.bytes, row.sha256) for row in written)

    def removals(self, chunks: tuple[Chunk, ...]) -> DataFrame:
        """The rows that were put down."""
        numbers = self.spark.range(0, len(chunks), 1, max(1, len(chunks)))
        return numbers.mapInArrow(RemovalReader(self.storage.uri, chunks), spark_columns("removals"))

    def record(self, prune: Prune, rows: DataFrame, files: int, prove: Callable[[], None]) -> Prune:
        """Write the tombstone of a prune, without its chunks, and before it the rows of what it deletes.

        `prove` finds the rows' destination and path in the view `doomed`, and raises Refused; nothing is left
        then. Only objects that nobody counts are written before the tombstone.
        """
        try:
            prune = replace(prune, chunks=self.put_down(rows, prune.prune_id, files))
            removals = self.removals(prune.chunks).select("destination", "path")
            removals.createOrReplaceTempView("doomed")
            prove()
            self.lease.renew()
            tombstones.write_prune(self.storage, prune)
        except Exception:
            self.forget(prune.prune_id)
            raise
        return prune

    def forget(self, prune_id: str) -> None:
        """Take away what was put down of one that is not to be."""
        for left in list(self.storage.list(layout.prune_folder(prune_id))):
            self.storage.delete(left.path)

    def carry_out(self, prune: Prune) -> Left:
        """All steps after `prune.json`, each of which may have been taken before; which objects stay.

        Raises Busy, before the first of them, when a restore of an engine's queues is on record.
        """
        name = f"prune-{prune.prune_id}"
        # A catalog that was rebuilt has them in commits of other names.
        reader = CatalogReader(self.destination, self.catalog)
        (there,) = reader.rows("prune_on_record", prune_id=prune.prune_id)
        if prune.backups:
            self._require_unread(prune, reader)
        if not there["floors"]:
            self.writer.append(prune.floors, f"{name}-floors")
        self._let_go(prune, reader)
        self._release(prune)
        if prune.chunks and not there["removals"]:
            self.writer.append_frame("removals", self.removals(prune.chunks), name)
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
            tombstones.finish(self.storage, prune.prune_id)
        return left

    def _require_unread(self, prune: Prune, reader: CatalogReader) -> None:
        """A restore of an engine reads files of all the chain, whichever topics they are of, and the snapshot
        beneath: nothing goes. One that comes later finds `prune.json`, and does not plan with these."""
        kinds = {row["source_kind"] for row in reader.rows("source_kinds", source=prune.source)}
        if QUEUES in kinds and self.spared():
            raise Busy(
                f"A restore of {prune.source} has not finished, and {self.action} {prune.prune_id} lets go "
                "of backups that it may read.",
                hint="Run the same again when the restore is done: it goes on. One that is given up stands "
                "in the way for 7 days.",
            )

    def _let_go(self, prune: Prune, reader: CatalogReader) -> None:
        """Say of the backups that go whole that they are deleted, each with its entry in the audit log."""
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
        """Hold no more the snapshots of an engine on which only fulls stood that go."""
        if not prune.backups:
            return
        reader = CatalogReader(self.destination, self.catalog)
        reader.give("leaving", leaving(prune.backups))
        for backup_id in snapshots_released(reader, prune.source):
            row = Hold(
                backup_id=backup_id,
                source=layout.snapshot_source(prune.source),
                at=micros(datetime.now(UTC)),
                actor=prune.actor,
                reason=f"no full of {prune.source} stands on it any more: {self.action} {prune.prune_id}",
                released=True,
            )
            self.writer.tell(row)
            self.reporter.note(
                f"backup {backup_id} of {row.source} is held no more: no full of {prune.source} stands on it"
            )

    def _delete(self, prune: Prune, spared: frozenset[tuple[str, str, str]]) -> Left:
        from lakebackup.sql_engine.spark import SparkEngine

        reader = CatalogReader(self.destination, self.catalog)
        roots = reader.destinations()
        folder = layout.prune_folder(prune.prune_id)
        foreign = foreign_destinations(reader, self.storage)
        job = DeleteObjects(self.storage.uri, folder, roots, prune.chunks, spared, foreign)
        self.reporter.start(prune.files, prune.bytes, self.action)
        count = len(prune.chunks)
        with TaskBoard(self.storage, folder).watched(self.reporter.update), task_errors():
            tasks = self.spark.range(0, count, 1, max(1, min(count, MOST_TASKS)))
            rows = tasks.mapInArrow(job, DELETED).collect()
            engine = SparkEngine(self.spark, self.writer.catalog_uri)
            filters = engine.query("unused_key_filters", prune_id=prune.prune_id)
            gone = filters.mapInArrow(DeleteKeys(roots, foreign), KEYS_DELETED).collect()  # a row a batch
        raise_first([*(row.error for row in rows if not row.failed), *(row.error for row in gone)])
        self.reporter.update(prune.files, prune.bytes)
        if kept := sum(row.foreign or 0 for row in rows):
            self.reporter.note(
                f"{kept} files stay: their destinations came with an import, and only the catalog that wrote "
                "them deletes there"
            )
        made = Left()
        for row in rows:
            made += Left(row.spared, row.failed, json.loads(row.error)["message"] if row.error else "")
        return made
