"""Deletion by tombstone: what it names stops counting, then its objects are deleted, then it is done.

Each step may have been taken before, by a run that was interrupted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, Incomplete, NoPermission
from lakebackup.plan.upkeep.prune import leaving, snapshots_released
from lakebackup.rows.base import QUEUES
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row, spark_columns
from lakebackup.rows.upkeep import Audit, Hold
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.worker import in_batches
from lakebackup.store import tombstones, trust
from lakebackup.store.caller import OK
from lakebackup.store.tombstones import Chunk, Prune, RemovalReader, RemovalWriter
from lakebackup_jobs.lifecycle.deletion.task import KEYS_DELETED, DeleteKeys, DeleteObjects
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.tasks.errors import raise_first
from lakebackup_jobs.lifecycle.tasks.splits import MOST_TASKS
from lakebackup_jobs.lifecycle.tasks.task import run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.rows.backups import Removal
    from lakebackup.storage import Storage
    from lakebackup.store.lease import Lease
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.workspace import Workspace

# Rows of the catalog's tables of files up to which the command itself deletes.
_MOST_HERE = 100_000
# The name of no object.
_NO_OBJECT = "none"
# Backups whose state one commit changes.
_STATES = 1000


def is_large(reader: CatalogReader) -> bool:
    """Whether a catalog has so many rows of files that Spark deletes."""
    return reader.count("files", "snapshot_files") > _MOST_HERE


@dataclass(frozen=True, slots=True)
class Left:
    """Objects that are left for a later run: restores read them, or they could not be deleted."""

    spared: int = 0
    failed: int = 0
    first: str = ""

    def __add__(self, other: Left) -> Left:
        return Left(self.spared + other.spared, self.failed + other.failed, self.first or other.first)

    def require_none(self, result: dict[str, Any]) -> None:
        """Raises Incomplete, which has the result, when something is left."""
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
    """Ids of the destinations in which this run deletes nothing: all but its own repository and those that
    this machine's settings name. A row of the catalog can say of any place that it is a destination."""
    own = {home.uri} | trust.local().delete_in
    return frozenset(name for name, uri in reader.destinations().uris.items() if uri not in own)


@dataclass(frozen=True, slots=True)
class Removals:
    """Files to delete, as rows of removals: those of a statement of `sql/queries`, about so many `files`, and
    a few `more`. `reader` asks for them, and for the proof."""

    reader: CatalogReader
    statement: str
    parameters: Mapping[str, Any]
    files: int
    more: Sequence[Removal] = ()

    def spread(self, rows: DataFrame) -> DataFrame:
        """The rows as Spark's tasks take them, the newest backups' first."""
        count = min(MOST_TASKS, 1 + self.files // tombstones.CHUNK_ROWS)
        if count == 1:
            return rows.coalesce(1)
        return rows.repartitionByRange(count, rows.backup_id.desc(), rows.path.desc())


@dataclass(frozen=True)
class Deletion:
    """Deletes what tombstones of a source name. `action`: what the audit log calls it; `spared`: the
    partitions (topic, epoch, number) whose objects stay for now."""

    workspace: Workspace
    action: str
    lease: Lease
    spared: Callable[[], frozenset[tuple[str, str, str]]]

    @cached_property
    def spark(self) -> SparkSession | None:
        """What deletes: Spark where the catalog is large; None: this process."""
        work = self.workspace
        return work.spark if is_large(work.reader()) else None

    @cached_property
    def writer(self) -> CatalogWriter:
        """The catalog, to write to."""
        return self.workspace.writer(here=self.spark is None)

    def run(self, plan: Callable[[], tuple[dict[str, Any], Prune | None]]) -> dict[str, Any]:
        """Complete what was interrupted, then delete what `plan` records; its summary with the outcome.

        Raises NoPermission, before anything is done, where this account may delete nothing; Incomplete, after
        the result was reported, when objects are left.
        """
        self._require_right()
        resumed, left = self.resume()
        summary, recorded = plan()
        if recorded:
            left += self.carry_out(recorded)
        done = {"deleted": True, "prune_id": recorded.prune_id if recorded else None, "resumed": resumed}
        result = self.workspace.timed({**done, **summary})
        left.require_none(result)
        return result

    def _require_right(self) -> None:
        """Delete an object that is not there, which needs the same right as one that is."""
        storage = self.workspace.storage
        try:
            storage.delete(layout.source_folder(self.workspace.source) + _NO_OBJECT)
        except NoPermission as error:
            raise NoPermission(
                f"This account may not delete what {self.action} would: nothing was done. {error.message}",
                hint="Use an account that may delete.",
            ) from error

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

    def reader(self) -> CatalogReader:
        """The catalog as it is now, asked by what deletes."""
        found = self.workspace.reader()
        return found.on(self.spark) if self.spark else found

    def record(self, prune: Prune, removals: Removals, prove: Callable[[], None]) -> Prune:
        """Write the removals, prove that what stays can be restored, and write `prune.json`.

        `prune` is without chunks. `prove` asks the removals' reader, which has their destination and path as
        the relation `doomed`, and raises Refused. Before the last step the prune does not exist: when one
        fails, its removals are deleted.
        """
        try:
            recorded = replace(prune, chunks=self._write_removals(prune.prune_id, removals))
            self._show_doomed(removals.reader, recorded.chunks)
            prove()
            self.lease.renew()
            tombstones.write_prune(self.workspace.storage, recorded)
        except Exception:
            self.workspace.empty(layout.prune_folder(prune.prune_id))
            raise
        return recorded

    def _write_removals(self, prune_id: str, removals: Removals) -> tuple[Chunk, ...]:
        """Write rows of removals beside the data, the newest backups' in the first of the chunks."""
        write = RemovalWriter(self.workspace.storage.uri, prune_id)
        more = in_batches(map(as_row, removals.more), ARROW_SCHEMAS["removals"], tombstones.CHUNK_ROWS)
        if self.spark:
            # A row for each 20,000 files.
            chunks = removals.reader.map(
                write, tombstones.WRITTEN, removals.statement, spread=removals.spread, **removals.parameters
            )
        else:
            found = removals.reader.query(removals.statement, **removals.parameters).read_all()
            newest_first = found.sort_by([("backup_id", "descending"), ("path", "descending")])
            more, chunks = chain(newest_first.to_batches(), more), []
        chunks += [row for batch in write(more) for row in batch.to_pylist()]
        return tuple(Chunk(**row) for row in chunks)

    def _show_doomed(self, reader: CatalogReader, chunks: tuple[Chunk, ...]) -> None:
        """Give what asks the proof the files that go, as they were written."""
        import pyarrow as pa

        columns = ["destination", "path"]
        written = RemovalReader(self.workspace.storage.uri, chunks)
        if self.spark:
            rows = written.over(self.spark, range(len(chunks)), spark_columns("removals"))
            rows.select(*columns).createOrReplaceTempView("doomed")
        else:
            schema = pa.schema([ARROW_SCHEMAS["removals"].field(name) for name in columns])
            batches = [rows.select(columns) for number in range(len(chunks)) for rows in written.rows(number)]
            reader.give("doomed", pa.Table.from_batches(batches, schema))

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
                f"backup {backup_id} of {row.source} is no longer held: no full of {prune.source} needs it"
            )

    def _delete(self, prune: Prune, spared: frozenset[tuple[str, str, str]]) -> Left:
        reader, work = self.reader(), self.workspace
        roots = reader.destinations()
        folder = layout.prune_folder(prune.prune_id)
        foreign = foreign_destinations(reader, work.storage)
        job = DeleteObjects(work.storage.uri, folder, roots, prune.chunks, spared, foreign)
        work.reporter.start(prune.files, prune.bytes, self.action, "files")
        with work.task_progress(folder).watched(work.reporter.update), task_errors():
            rows = run_all(job, range(len(prune.chunks)), self.spark, MOST_TASKS)
            # A row a batch.
            gone = reader.map(
                DeleteKeys(roots, foreign), KEYS_DELETED, "unused_key_filters", prune_id=prune.prune_id
            )
        raise_first(row["error"] for row in gone)
        work.reporter.update(prune.files, prune.bytes)
        if kept := sum(row.foreign for row in rows):
            work.reporter.note(
                f"{kept} files were not deleted: they are in other repositories, where this machine may not "
                "delete. To allow it, name them as delete_in under [approved] in lakebackup.toml."
            )
        return sum((Left(row.spared, row.failed, row.first or "") for row in rows), Left())
