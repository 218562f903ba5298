"""The last task of a flush, which combines what the others captured.

From the marks of the capture's tasks and the regions before: how far each region is now, and up to which ts
the log is whole. From the meta keys: which tables exist, under which names. Both are written as listings,
whose rows the commit puts into the catalog.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.formats.logs.events import DEFAULT, PUT, WRITE
from lakebackup.formats.logs.logfile import FORMAT, read_log_file
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.plan.logs.restore import NEVER
from lakebackup.rows.logs import LogTable
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.storage import Storage, open_storage
from lakebackup.store.delta_append import LISTED
from lakebackup.store.manifest import read_parts
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, totals
from lakebackup_jobs.logs.capture import region_marks
from lakebackup_jobs.logs.capture.names_task import names_of, since

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebackup.formats.logs.cipher import LogKeys
    from lakebackup.rows.backups import DataFile
    from lakebackup_jobs.logs.feeds import Feed

#: One row. checkpoint: up to which ts the log is whole once this flush is in the catalog, never less than
#: `resolved_ts` of the job; NULL: not known yet.
FOLDED = f"{OUTCOME}, checkpoint BIGINT"


@dataclass(frozen=True, kw_only=True)
class FoldJob(Parts, Task):
    """Run once, when all capture tasks are done. Its part comes after theirs: number `tasks`.

    catalog: where the catalog is, None: below the destination; it has regions and tables as they were. feed,
    context: as the CaptureJob's. tasks: how many capture tasks there were. resolved_ts: the checkpoint
    before, None: none yet. filters: as the task's settings. keys: for meta files that are encrypted.
    """

    COLUMNS = FOLDED

    level: int = 1
    catalog: str | None
    feed: Feed
    context: Mapping[str, Any]
    tasks: int
    resolved_ts: int | None
    filters: tuple[str, ...] = ()
    keys: LogKeys | None = None

    def run(self, number: int = 0) -> dict[str, Any]:  # noqa: ARG002 - there is one
        """Combine what the capture tasks found.

        Raises EnvironmentProblem (storage), Damaged (marks, meta keys, what the feed kept), UsageProblem
        (keys).
        """
        storage = open_storage(self.uri)
        rows = self.once(storage, self.tasks, lambda: _Fold(self, storage).listings())
        # The listing of regions has it: a part that is there is not folded again.
        checkpoint = next(row.resolved_ts for row in rows if row.format == LISTED["log_regions"])
        return totals(self.tasks, rows) | {"checkpoint": checkpoint}


class _Fold:
    """One attempt."""

    def __init__(self, job: FoldJob, storage: Storage) -> None:
        self._job, self._storage = job, storage
        self._catalog = CatalogReader(job.uri, job.catalog)
        self._attempt = secrets.token_hex(4)
        seen = self._catalog.one("log_seen", source=job.source)
        self._seen_ts: int = (seen or {}).get("seen_ts") or 0
        self._seen_before = self._seen_ts

    def listings(self) -> list[DataFile]:
        """Write both; their rows."""
        job = self._job
        reports, marks = self._read()
        known = self._regions(marks)
        finished = [one for report in reports for one in report["finished"]]
        checkpoint = job.feed.checkpoint(
            self._storage,
            job.context,
            iter(finished),
            region_marks.mappings(known),
            job.resolved_ts,
        )
        before = self._catalog.rows("log_namings", source=job.source)
        files = self._meta_files()
        names = [
            *self._entered(before, checkpoint),
            *self._named(before, checkpoint, files),
            *self._met(before, finished),
        ]
        regions = self._region_rows(known, marks)
        listed = [self._listing("log_regions", regions, checkpoint)]
        if names:
            rows = pa.RecordBatch.from_pylist([as_row(row) for row in names], ARROW_SCHEMAS["log_tables"])
            listed.append(self._listing("log_tables", [rows], checkpoint))
        return listed

    def _read(self) -> tuple[list[dict[str, Any]], pa.Table]:
        """The reports of the capture's tasks, and the marks of all."""
        job, reports, marks = self._job, [], [region_marks.SCHEMA.empty_table()]
        for task in range(job.tasks):
            rows, report = region_marks.get(self._storage, job.source, job.backup_id, task)
            marks.append(rows)
            reports.append(report)
            self._see(report["left_ts"])
        found = region_marks.newest(pa.concat_tables(marks))
        self._see(pc.max(found["resolved_ts"]).as_py())
        return reports, found

    def _see(self, ts: int | None) -> None:
        self._seen_ts = max(self._seen_ts, ts or 0)

    def _regions(self, marks: pa.Table) -> pa.Table:
        """How far every known region is, this flush included (region_marks.SCHEMA)."""
        before = []
        for batch in self._catalog.query("log_known_regions", source=self._job.source):
            after = [json.loads(text) if text else None for text in batch["successors"].to_pylist()]
            columns = [
                batch["region"].cast(pa.int64()),
                *(batch[name] for name in ("store", "resolved_ts", "closed")),
                pa.array(after, region_marks.SCHEMA.field("successors").type),
                pa.array([True] * len(batch)),
            ]
            before.append(pa.table(columns, schema=region_marks.SCHEMA))
        seen, marked = (marks.filter(chosen) for chosen in (pc.invert(marks["marked"]), marks["marked"]))
        return region_marks.newest(pa.concat_tables([seen, *before, marked]))

    def _region_rows(self, known: pa.Table, marks: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of log_regions, of the regions in this flush."""
        job = self._job
        rows = known.filter(pc.is_in(known["region"], marks["region"].combine_chunks()))
        schema = ARROW_SCHEMAS["log_regions"]
        for batch in rows.to_batches(max_chunksize=50_000):
            after = batch["successors"].to_pylist()
            columns = {
                "backup_id": pa.repeat(job.backup_id, len(batch)),
                "number": pa.repeat(job.number, len(batch)),
                "source": pa.repeat(job.source, len(batch)),
                "region": batch["region"].cast(pa.string()),
                "store": batch["store"],
                "resolved_ts": batch["resolved_ts"],
                "closed": batch["closed"],
                "successors": pa.array([json.dumps(ids) if ids else None for ids in after], pa.string()),
            }
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _entered(self, before: list[dict[str, Any]], checkpoint: int | None) -> Iterator[LogTable]:
        """Tables that entered the filter before this flush, which captures them, and so are covered now.

        Only once the checkpoint is beyond all that was read while they were left out: until then, values that
        were prewritten meanwhile may be committed.
        """
        job, meant = self._job, TableFilter(self._job.filters)
        if checkpoint is None or checkpoint < self._seen_before:
            return
        for row in before:
            if (
                row["covered_from"] == NEVER
                and row["action"] != "drop"
                and meant.takes(row["db"], row["name"])
            ):
                row["covered_from"] = max(self._seen_ts, row["from_ts"])
                yield LogTable(backup_id=job.backup_id, source=job.source, **row)

    def _named(
        self, before: list[dict[str, Any]], checkpoint: int | None, files: list[Any]
    ) -> list[LogTable]:
        """Rows from the meta keys."""
        job = self._job
        least = since(before, job.resolved_ts)
        writes = [file for file in files if file.cf == WRITE and file.max_ts > least]
        writes += self._earlier(WRITE, least + 1)
        begins = [file.min_begin_ts for file in writes if file.min_begin_ts is not None]
        values = [file for file in files if file.cf == DEFAULT]
        if begins:
            values += self._earlier(DEFAULT, min(begins))
        records = ((file.cf, batch) for file in [*writes, *values] for batch in self._contents(file))
        return names_of(
            records,
            before,
            source=job.source,
            backup_id=job.backup_id,
            after=job.resolved_ts,
            until=checkpoint,
            tables=TableFilter(job.filters),
        )

    def _meta_files(self) -> list[Any]:
        """This flush's files of put meta keys; sees the greatest ts of all its files."""
        job, found = self._job, []
        for row in read_parts(self._storage, job.source, job.backup_id, job.tasks):
            if row.format == FORMAT:
                self._see(row.max_ts)
                if row.role == "schema" and row.op == PUT:
                    found.append(row)
        return found

    def _earlier(self, cf: str, least_ts: int) -> list[Any]:
        """Files of meta keys of earlier flushes, from a ts on."""
        rows = self._catalog.rows("log_meta_files", source=self._job.source, cf=cf, least_ts=least_ts)
        return [SimpleNamespace(**row) for row in rows]

    def _contents(self, file: Any) -> Iterator[pa.RecordBatch]:
        job, storage = self._job, self._storage
        if file.destination != job.destination:
            storage = self._catalog.destinations().open(file.destination)
        return read_log_file(storage, file, job.keys)

    def _met(self, before: list[dict[str, Any]], finished: Iterable[Mapping[str, Any]]) -> Iterator[LogTable]:
        """Tables that the feed's events name themselves, when first seen."""
        job, meant = self._job, TableFilter(self._job.filters)
        known = {row["table_id"] for row in before}
        met: dict[int, tuple[str, str, int]] = {}
        for table_id, db, name, ts in (table for one in finished for table in one.get("tables", ())):
            if table_id not in known:
                least = min(ts, met[table_id][2]) if table_id in met else ts
                met[table_id] = (db, name, least)
        for table_id, (db, name, ts) in sorted(met.items()):
            covered = min(job.resolved_ts or 0, ts) if meant.takes(db, name) else NEVER
            yield LogTable(
                backup_id=job.backup_id,
                source=job.source,
                table_id=table_id,
                db=db,
                name=name,
                from_ts=ts,
                action="create",
                covered_from=covered,
            )

    def _listing(
        self,
        table: Literal["log_regions", "log_tables"],
        batches: Iterable[pa.RecordBatch],
        checkpoint: int | None,
    ) -> DataFile:
        """Write rows of a table beside the backup, where its commit, and a rebuild, find them."""
        job = self._job
        path = f"{job.folder}listing/{job.tasks:06d}-{self._attempt}.{table[4:]}.parquet"
        size, _, sha256 = write_rows(self._storage, path, ARROW_SCHEMAS[table], batches)
        return job.listing(
            table,
            path,
            size,
            sha256,
            ts_domain=job.feed.domain,
            # No start or commit ts that the task has read so far is greater, whether it was kept or not.
            min_ts=self._seen_ts,
            max_ts=self._seen_ts,
            resolved_ts=checkpoint,
        )
