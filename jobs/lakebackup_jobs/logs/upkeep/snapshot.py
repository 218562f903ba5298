"""A full of a change feed: a Delta table of the latest committed values at an instant, beside the log.

It is restored from the newest full before it and the log since. Its objects become rows of `files`.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.errors import Refused
from lakebackup.plan.logs.restore import note_of, plan_restore, require_restorable, to_ms
from lakebackup.rows.base import CHANGES
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.worker import task_number
from lakebackup.storage import open_storage
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import is_held
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.run import Life, backup_row
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.part import PartTask, run_tasks
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore.job import bring, summary_of
from lakebackup_jobs.targets import Held
from lakebackup_jobs.targets.delta import DeltaTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from lakebackup.plan.logs.restore import LogRestorePlan, LogRestoreRequest
    from lakebackup.rows.backups import Backup, DataFile
    from lakebackup.storage import Storage
    from lakebackup.store.lease import Lease
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.progress import Reporter

FORMAT = "delta"
_OBJECT = "path STRING, bytes BIGINT, entries BIGINT, sha256 STRING"
_WAIT_S = 300.0
# Objects of a full that one task describes.
_EACH = 64


def run(
    request: LogRestoreRequest,
    *,
    plain: bool = False,
    spark: SparkSession | None = None,
    reporter: Reporter,
) -> dict[str, Any]:
    """Make the full as of the end of the request; returns its summary.

    `plain`: also of encrypted log files, though a full is not encrypted. Raises as a restore, and Busy.
    """
    started = time.monotonic()
    now = datetime.now(UTC)
    catalog = current_catalog(request.destination, request.catalog)
    request = replace(request, on_full=True, filters=())
    made = plan_restore(request, catalog, leave_uncovered=True)
    full = Full(layout.new_backup_id(now), started_at=micros(now))
    for note in made.notes:
        reporter.warning(note)
    summary = {"backup_id": full.backup_id, **summary_of(made), "time_ms": to_ms(made)}
    if request.dry_run:
        return {"dry_run": True, **summary}
    if made.encrypted and not plain:
        raise Refused(
            f"{made.encrypted} log files of {made.source} are encrypted; a full would show their values.",
            hint="Give --plain if they may lie beside the log as they are.",
        )
    require_restorable(made, allow_gaps=request.allow_gaps)
    work = Workspace(request, made.source, reporter, spark)
    sweep(work)
    with work.lease(_lease_name(full.backup_id)) as lease:
        done = Life(LogFull(work, request, catalog, made), lease).take(full)
    return {**summary, **done, "seconds": round(time.monotonic() - started, 3)}


def _lease_name(backup_id: str) -> str:
    return f"full-{backup_id}"


def sweep(work: Workspace) -> None:
    """Delete what is left of fulls that were interrupted before they existed."""
    source = work.source
    for backup_id in list(work.storage.folders(layout.fulls_folder(source))):
        # In this order: a run writes the marker before it releases its lease.
        if (
            is_held(work.storage, _lease_name(backup_id))
            or work.storage.exists(layout.marker_path(source, backup_id, "complete"))
            or work.reader().rows("show_backup", backup_id=backup_id)
        ):
            continue
        work.reporter.note(f"deleting what full {backup_id} left, which was interrupted")
        # The manifest first: without it no rebuilt catalog takes it for a full.
        work.storage.delete(layout.manifest_path(source, backup_id))
        work.empty(layout.full_folder(source, backup_id), layout.backup_folder(source, backup_id))


@dataclass(frozen=True, slots=True)
class Full:
    """A planned full. It gets its `number` when it is published."""

    backup_id: str
    number: int = 0
    started_at: int = 0


class LogFull(Source[Full]):
    """The full of one log. One that was interrupted is not resumed: `sweep` deletes what it left."""

    def __init__(
        self, workspace: Workspace, request: LogRestoreRequest, catalog: CatalogReader, plan: LogRestorePlan
    ) -> None:
        super().__init__(workspace)
        self.request, self.catalog, self.made = request, catalog, plan

    def plan(self) -> Full:
        raise NotImplementedError("a full is planned by `run`")

    def resume_blocker(self, draft: Full) -> str | None:  # noqa: ARG002
        return "a full starts over"

    def copy(self, draft: Full) -> Totals:
        work, made = self.workspace, self.made
        folder = layout.full_folder(work.source, draft.backup_id)
        target = DeltaTarget(f"{work.storage.uri}/{folder}".rstrip("/"))
        after = Held.after(None, made, self.request)
        written = bring(self.request, self.catalog, made, target, None, after, work.spark, work.reporter)
        self._pieces = _look(work.spark, work.storage, folder, self._listing(draft))
        totals = Totals()
        totals.entries = written["entries"]
        return totals

    @contextmanager
    def publishing(self, lease: Lease) -> Iterator[Lease]:  # noqa: ARG002
        """Flushes wait while the full gets its number and is published."""
        with self.workspace.lease(wait_s=_WAIT_S) as held:
            yield held

    def manifest(self, draft: Full, totals: Totals) -> Manifest:  # noqa: ARG002
        work, made = self.workspace, self.made
        draft = replace(draft, number=latest_number(work.reader(), work.source) + 1)
        parts = _Parts(
            uri=work.storage.uri,
            destination=work.destination,
            source=work.source,
            backup_id=draft.backup_id,
            number=draft.number,
            listing_folder=self._listing(draft),
            domain=made.domain,
            end_ts=made.end_ts,
        )
        found = run_tasks(work, parts, range(self._pieces))
        backup = backup_row(
            work,
            draft,
            found,
            None,
            source_kind=CHANGES,
            kind="full",
            level=0,
            ts_domain=made.domain,
            end_ts=made.end_ts,
            isolation="read_committed",
            codec="none",
            note=note_of(made),
        )
        return Manifest(backup=backup, positions=[], scopes=[], gaps=[], parts=self._pieces)

    def discard(self, draft: Full) -> int:
        return self.workspace.empty(layout.full_folder(self.workspace.source, draft.backup_id))

    def finish(self, draft: Full) -> None:
        for task in range(self._pieces):
            self.workspace.storage.delete(_piece(self._listing(draft), task))

    def result(self, draft: Full, backup: Backup) -> dict[str, Any]:  # noqa: ARG002
        return {"number": backup.number, "entries": backup.entries, "bytes_stored": backup.bytes}

    def _listing(self, draft: Full) -> str:
        return f"{layout.backup_folder(self.workspace.source, draft.backup_id)}listing/"


def _look(spark: SparkSession, storage: Storage, folder: str, listing: str) -> int:
    """Describe the objects of a full below `listing`; returns in how many pieces."""
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
    """The objects of a full. Hadoop's checksum files are deleted: only folders have them, and the rows have a
    digest."""

    uri: str
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        storage, task = open_storage(self.uri), task_number()
        rows = [self._row(storage, path) for batch in batches for path in batch.column(0).to_pylist()]
        sink = pa.BufferOutputStream()
        schema = arrow_schema(_OBJECT)
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_pylist(rows, schema))
        storage.put(_piece(self.listing, task), sink.getvalue().to_pybytes())
        yield pa.RecordBatch.from_pydict({"task": pa.array([task], pa.int32())})

    def _row(self, storage: Storage, path: str) -> dict[str, Any]:
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


@dataclass(frozen=True, kw_only=True)
class _Parts(PartTask):
    """The parts of a full's manifest, from the description of its objects."""

    listing_folder: str
    domain: str
    end_ts: int

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        with pa.ipc.open_stream(storage.get(_piece(self.listing_folder, task))) as stream:
            found = stream.read_all().to_pylist()
        return [self._row(one) for one in found]

    def _row(self, found: dict[str, Any]) -> DataFile:
        return self.row(
            **found,
            raw_bytes=found["bytes"],
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
