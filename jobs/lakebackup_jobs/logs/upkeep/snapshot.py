"""Make a full of a change feed: a Delta table of the latest committed values at an instant, beside the log.

It is made of the newest full before and the log from there on. Its objects become rows of `files`; the number
of the backup is known, and the task's flushes wait, only while these rows are written.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.plan.logs.restore import note_of, plan_restore, require_restorable, to_ms
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.base import CHANGES
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import Lease, is_held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.numbers import latest_number
from lakebackup_jobs.lifecycle.task_errors import arrow_schema, guarded
from lakebackup_jobs.lifecycle.task_totals import OUTCOME, Totals, totals
from lakebackup_jobs.logs.restore.job import bring, summary_of
from lakebackup_jobs.targets import Held
from lakebackup_jobs.targets.delta import DeltaTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

FORMAT = "delta"
_OBJECT = "path STRING, bytes BIGINT, entries BIGINT, sha256 STRING"
_WAIT_S = 300.0
# Objects of a full that one task looks at.
_EACH = 64


def run(
    request: LogRestoreRequest,
    *,
    plain: bool = False,
    spark: SparkSession | None = None,
    reporter: Reporter,
) -> dict[str, Any]:
    """Make the full as of the end that was asked for; returns what a person wants to know of it.

    `plain`: also of log files that are encrypted, which a full is not. Raises what a restore does, and Busy.
    """
    from lakebackup_jobs.runtime.session import spark_session

    started = datetime.now(UTC)
    began = time.monotonic()
    catalog = current_catalog(request.destination, request.catalog)
    request = replace(request, on_full=True, filters=())
    made = plan_restore(request, catalog, leave_uncovered=True)
    backup_id = layout.new_backup_id(started)
    storage = open_storage(request.destination)
    folder = layout.full_folder(made.source, backup_id)
    for note in made.notes:
        reporter.warning(note)
    summary = {"backup_id": backup_id, **summary_of(made), "time_ms": to_ms(made)}
    if request.dry_run:
        return {"dry_run": True, **summary}
    if made.encrypted and not plain:
        raise Refused(
            f"{made.encrypted} log files of {made.source} are encrypted; a full would show their values.",
            hint="Give --plain if they may lie beside the log as they are.",
        )
    require_restorable(made, allow_gaps=request.allow_gaps)
    sweep(storage, request, reporter)
    spark = spark or spark_session(remote=request.remote)
    target = DeltaTarget(f"{storage.uri}/{folder}".rstrip("/"))
    with Lease.acquire(storage, _lease_name(backup_id), holder(), ttl_s=request.lease_ttl_s) as own:
        after = Held.after(None, made, request)
        bring(request, catalog, made, target, None, after, spark, reporter)
        listing = f"{layout.backup_folder(made.source, backup_id)}listing/"
        count = _look(spark, storage, folder, listing)
        backup = _publish(request, made, backup_id, started, count, spark, own)
    return {
        **summary,
        "number": backup.number,
        "entries": backup.entries,
        "bytes_stored": backup.bytes,
        "seconds": round(time.monotonic() - began, 3),
    }


def _lease_name(backup_id: str) -> str:
    return f"full-{backup_id}"


def sweep(storage: Storage, request: LogRestoreRequest, reporter: Reporter) -> None:
    """Take away what runs have left that were killed before their fulls existed."""
    source = request.name
    for backup_id in list(storage.folders(layout.fulls_folder(source))):
        # In this order: who is done has put the marker before the lease is let go of.
        if (
            is_held(storage, _lease_name(backup_id))
            or sidecar.marked(storage, layout.marker_path(source, backup_id, "complete"))
            or CatalogReader.require(request.destination, request.catalog).rows(
                "show_backup", backup_id=backup_id
            )
        ):
            continue
        reporter.note(f"taking away what full {backup_id} left, which was cut off")
        # The manifest first: without it no catalog that is made anew takes it for a full.
        storage.delete(layout.manifest_path(source, backup_id))
        for folder in (layout.full_folder(source, backup_id), layout.backup_folder(source, backup_id)):
            for found in list(storage.list(folder)):
                storage.delete(found.path)


def _look(spark: SparkSession, storage: Storage, folder: str, listing: str) -> int:
    """Write down below `listing` what the objects of a full are; returns in how many pieces."""
    with task_errors():
        found = spark.range(0, 1, 1, 1).mapInArrow(_List(storage.uri, folder), "path STRING").persist()
        try:
            count = max(1, -(-found.count() // _EACH))
            tasks = found.repartition(count).mapInArrow(_Look(storage.uri, listing), "task INT")
            tasks.collect()  # a row a task
        finally:
            found.unpersist()
    return count


@dataclass(frozen=True, slots=True)
class _List:
    """The objects of a full. What Hadoop keeps beside files of a folder is taken away: no other storage has
    it, and the rows have a digest."""

    uri: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage = open_storage(self.uri)
        paths: list[str] = []
        for _ in batches:
            for found in storage.list(self.folder):
                if found.path.rpartition("/")[2].startswith("."):
                    storage.delete(found.path)
                else:
                    paths.append(found.path)
                if len(paths) == 10_000:
                    yield pa.RecordBatch.from_pydict({"path": paths})
                    paths = []
        yield pa.RecordBatch.from_pydict({"path": pa.array(paths, pa.string())})


@dataclass(frozen=True, slots=True)
class _Look:
    """Size, rows and SHA-256 of objects, as an Arrow object a task."""

    uri: str
    listing: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        storage = open_storage(self.uri)
        rows = [self._row(storage, path) for batch in batches for path in batch.column(0).to_pylist()]
        sink = pa.BufferOutputStream()
        schema = arrow_schema(_OBJECT)
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_pylist(rows, schema))
        storage.put(_piece(self.listing, task), sink.getvalue().to_pybytes())
        yield pa.RecordBatch.from_pydict({"task": pa.array([task], pa.int32())})

    def _row(self, storage: Storage, path: str) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = storage.get(path)
        rows = path.endswith(".parquet") and "/_delta_log/" not in path
        return {
            "path": path,
            "bytes": len(data),
            "entries": pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows if rows else 0,
            "sha256": hashlib.sha256(data).hexdigest(),
        }


def _piece(listing: str, task: int) -> str:
    return f"{listing}{task:06d}.objects.arrow"


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a full's manifest, of what was written down of its objects: a row of OUTCOME each."""

    uri: str
    listing: str
    row: DataFile

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield guarded(OUTCOME, partial(self._one, task), task=task)

    def _one(self, task: int) -> dict[str, object]:
        import pyarrow as pa

        storage = open_storage(self.uri)
        with pa.ipc.open_stream(storage.get(_piece(self.listing, task))) as stream:
            found = stream.read_all().to_pylist()
        rows = [replace(self.row, **one, raw_bytes=one["bytes"]) for one in found]
        path = layout.parts_path(self.row.source, self.row.backup_id, task)
        return totals(task, sidecar.write_part(storage, path, rows))


def _publish(
    request: LogRestoreRequest,
    made: LogRestorePlan,
    backup_id: str,
    started: datetime,
    count: int,
    spark: SparkSession,
    own: Lease,
) -> Backup:
    """Make the full exist whose objects are there. `own`: by which nobody takes it for a dead run's."""
    storage, source = open_storage(request.destination), made.source
    destination = destination_id(storage)
    listing = f"{layout.backup_folder(source, backup_id)}listing/"
    lease = Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s, wait_s=_WAIT_S)
    with lease:
        number = latest_number(CatalogReader.require(request.destination, request.catalog), source) + 1
        row = DataFile(
            destination=destination,
            path="",
            backup_id=backup_id,
            added_in=number,
            source=source,
            scope="-",
            epoch="-",
            region="-",
            format=FORMAT,
            codec="none",
            bytes=0,
            raw_bytes=0,
            sha256="",
            entries=0,
            ts_domain=made.domain,
            min_ts=made.end_ts,
            max_ts=made.end_ts,
            start_position=0,
            end_position=1,
        )
        found = Totals()
        with task_errors():
            tasks = spark.range(0, count, 1, count).mapInArrow(_Parts(storage.uri, listing, row), OUTCOME)
            found.add(tasks.collect())  # a row a task
        backup = Backup(
            backup_id=backup_id,
            number=number,
            source=source,
            source_kind=CHANGES,
            destination=destination,
            kind="full",
            level=0,
            parent=None,
            base=backup_id,
            chain_position=0,
            place=number,
            parent_place=None,
            ts_domain=made.domain,
            start_ts=None,
            end_ts=made.end_ts,
            started_at=micros(started),
            **found.columns(),
            isolation="read_committed",
            codec="none",
            note=note_of(made),
        )
        manifest = sidecar.Manifest(backup=backup, positions=[], scopes=[], gaps=[], parts=count)
        own.check()
        lease.renew()
        sidecar.write_manifest(storage, layout.manifest_path(source, backup_id), manifest)
        CatalogWriter.open(spark, request.destination, request.catalog).commit_backup(
            storage, manifest, held=lease
        )
        sidecar.mark(storage, layout.marker_path(source, backup_id, "complete"))
    for task in range(count):
        storage.delete(_piece(listing, task))
    return backup
