"""The last task of a flush, which combines what the capture tasks reported.

It takes the newest mark of each region from the reports and the catalog. From the marks it computes the
checkpoint, the ts up to which the log is complete. It takes the names of new tables from the meta keys and
the events. It writes marks and names as listings, whose rows the commit adds to the catalog.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.events import DEFAULT, PUT, WRITE
from lakebackup.formats.logs.logfile import FORMAT, read_log_file
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup.plan.logs.restore import NEVER
from lakebackup.rows.backups import DataFile
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
from lakebackup_jobs.logs.capture.names_task import names_known_to, names_of
from lakebackup_jobs.logs.feeds import Feed

#: One row. checkpoint: the ts up to which the log is complete once this flush is in the catalog, never less
#: than `resolved_ts` of the job; NULL: not known yet.
FOLDED = f"{OUTCOME}, checkpoint BIGINT"


@dataclass(frozen=True, kw_only=True)
class FoldJob(Parts, Task):
    """The task that runs once, when all capture tasks are done. Its part has the number `tasks`, after
    theirs.

    `catalog`: the URI of the catalog, which has the regions and tables as they were before; None: it is below
    the destination. `feed`, `context`: those of the CaptureJob. `tasks`: the number of capture tasks.
    `resolved_ts`: the previous checkpoint; None: there is none yet. `tables`: those that the log task
    captures. `keys`: for encrypted meta files.
    """

    COLUMNS = FOLDED

    level: int = 1
    catalog: str | None
    feed: Feed
    context: Mapping[str, Any]
    tasks: int
    resolved_ts: int | None
    tables: TableFilter = field(default_factory=TableFilter)
    keys: LogKeys | None = None

    def run(self, number: int = 0) -> dict[str, Any]:  # noqa: ARG002 - there is only one task
        """Combine the reports of the capture tasks; returns the row of the task (FOLDED).

        Raises EnvironmentProblem (storage), Damaged (marks, meta keys, objects of the feed) and UsageProblem
        (keys).
        """
        storage = open_storage(self.uri)
        rows = self.write_once(storage, self.tasks, lambda: _Fold(self, storage).listings())
        # If an earlier attempt wrote the part, nothing was folded now. So the checkpoint is read from its
        # rows.
        checkpoint = next(row.resolved_ts for row in rows if row.format == LISTED["log_regions"])
        return totals(self.tasks, rows) | {"checkpoint": checkpoint}


class _Fold:
    """One attempt at the task. `_seen_ts` is the greatest start or commit ts that the log task has read so
    far."""

    def __init__(self, job: FoldJob, storage: Storage) -> None:
        self._job, self._storage = job, storage
        self._catalog = CatalogReader(job.uri, job.catalog)
        self._attempt = secrets.token_hex(4)
        seen_row = self._catalog.first_row("log_seen", source=job.source)
        self._seen_ts: int = (seen_row or {}).get("seen_ts") or 0
        self._old_seen_ts = self._seen_ts

    def listings(self) -> list[DataFile]:
        """Write the listings of regions and tables; returns their rows."""
        job = self._job
        reports, marks = self._read_reports()
        known_regions = self._regions(marks)
        finished = [partition_report for report in reports for partition_report in report["finished"]]
        checkpoint = job.feed.checkpoint(
            self._storage,
            job.context,
            iter(finished),
            region_marks.mappings(known_regions),
            job.resolved_ts,
        )
        namings = self._catalog.rows("log_namings", source=job.source)
        files = self._meta_files()
        names = [
            *self._newly_covered(namings, checkpoint),
            *self._named_by_meta_keys(namings, checkpoint, files),
            *self._named_by_events(namings, finished),
        ]
        regions = self._region_rows(known_regions, marks)
        listing_files = [self._write_listing("log_regions", regions, checkpoint)]
        if names:
            rows = pa.RecordBatch.from_pylist([as_row(row) for row in names], ARROW_SCHEMAS["log_tables"])
            listing_files.append(self._write_listing("log_tables", [rows], checkpoint))
        return listing_files

    def _read_reports(self) -> tuple[list[dict[str, Any]], pa.Table]:
        """Return the reports of the capture tasks, and the newest mark of each of their regions."""
        job, reports, marks = self._job, [], [region_marks.SCHEMA.empty_table()]
        for task in range(job.tasks):
            rows, report = region_marks.read_report(self._storage, job.source, job.backup_id, task)
            marks.append(rows)
            reports.append(report)
            self._record_seen_ts(report["left_ts"])
        newest_marks = region_marks.newest(pa.concat_tables(marks))
        self._record_seen_ts(pc.max(newest_marks["resolved_ts"]).as_py())
        return reports, newest_marks

    def _record_seen_ts(self, ts: int | None) -> None:
        self._seen_ts = max(self._seen_ts, ts or 0)

    def _regions(self, marks: pa.Table) -> pa.Table:
        """Return the newest mark (region_marks.SCHEMA) of every region of the catalog and of this flush.

        `newest` takes the last row of a region: its mark in this flush, else its row in the catalog, else the
        row of a new region of which only events were read.
        """
        catalog_regions = []
        for batch in self._catalog.query("log_known_regions", source=self._job.source):
            successors = [json.loads(text) if text else None for text in batch["successors"].to_pylist()]
            columns = [
                batch["region"].cast(pa.int64()),
                *(batch[name] for name in ("store", "resolved_ts", "closed")),
                pa.array(successors, region_marks.SCHEMA.field("successors").type),
                pa.array([True] * len(batch)),
            ]
            catalog_regions.append(pa.table(columns, schema=region_marks.SCHEMA))
        unmarked, marked = (marks.filter(mask) for mask in (pc.invert(marks["marked"]), marks["marked"]))
        return region_marks.newest(pa.concat_tables([unmarked, *catalog_regions, marked]))

    def _region_rows(self, known_regions: pa.Table, marks: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows of log_regions for the regions in this flush."""
        job = self._job
        rows = known_regions.filter(pc.is_in(known_regions["region"], marks["region"].combine_chunks()))
        schema = ARROW_SCHEMAS["log_regions"]
        for batch in rows.to_batches(max_chunksize=50_000):
            successors = batch["successors"].to_pylist()
            columns = {
                "backup_id": pa.repeat(job.backup_id, len(batch)),
                "number": pa.repeat(job.number, len(batch)),
                "source": pa.repeat(job.source, len(batch)),
                "region": batch["region"].cast(pa.string()),
                "store": batch["store"],
                "resolved_ts": batch["resolved_ts"],
                "closed": batch["closed"],
                "successors": pa.array([json.dumps(ids) if ids else None for ids in successors], pa.string()),
            }
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _newly_covered(self, namings: list[dict[str, Any]], checkpoint: int | None) -> Iterator[LogTable]:
        """Yield rows for tables whose new names match the filter, and that are covered from this flush on.

        There are none before the checkpoint has passed everything that was read while the tables were left
        out. Until then, values that were prewritten in that time may still be committed.
        """
        job = self._job
        if checkpoint is None or checkpoint < self._old_seen_ts:
            return
        for row in namings:
            if (
                row["covered_from"] == NEVER
                and row["action"] != "drop"
                and job.tables.matches(row["db"], row["name"])
            ):
                row["covered_from"] = max(self._seen_ts, row["from_ts"])
                yield LogTable(backup_id=job.backup_id, source=job.source, **row)

    def _named_by_meta_keys(
        self, namings: list[dict[str, Any]], checkpoint: int | None, files: list[Any]
    ) -> list[LogTable]:
        """Return rows for the names in meta keys.

        The writes are read from this flush, and from earlier ones after the ts up to which names are known.
        Their values are in this flush, or in earlier ones from the least start ts of these writes on.
        """
        job = self._job
        least_ts = names_known_to(namings, job.resolved_ts)
        writes = [file for file in files if file.cf == WRITE and file.max_ts > least_ts]
        writes += self._earlier_meta_files(WRITE, least_ts + 1)
        begin_ts = [file.min_begin_ts for file in writes if file.min_begin_ts is not None]
        values = [file for file in files if file.cf == DEFAULT]
        if begin_ts:
            values += self._earlier_meta_files(DEFAULT, min(begin_ts))
        records = ((file.cf, batch) for file in [*writes, *values] for batch in self._contents(file))
        return names_of(
            records,
            namings,
            source=job.source,
            backup_id=job.backup_id,
            old_checkpoint=job.resolved_ts,
            until=checkpoint,
            tables=job.tables,
        )

    def _meta_files(self) -> list[Any]:
        """Return this flush's files with puts of meta keys. Also records the greatest ts of all its files."""
        job, meta_files = self._job, []
        for row in read_parts(self._storage, job.source, job.backup_id, job.tasks):
            if row.format == FORMAT:
                self._record_seen_ts(row.max_ts)
                if row.role == "schema" and row.op == PUT:
                    meta_files.append(row)
        return meta_files

    def _earlier_meta_files(self, cf: str, least_ts: int) -> list[Any]:
        """Return the files with puts of meta keys of earlier flushes whose `max_ts` is `least_ts` or
        later."""
        rows = self._catalog.rows("log_meta_files", source=self._job.source, cf=cf, least_ts=least_ts)
        return [SimpleNamespace(**row) for row in rows]

    def _contents(self, file: Any) -> Iterator[pa.RecordBatch]:
        job, storage = self._job, self._storage
        if file.destination != job.destination:
            storage = self._catalog.destinations().open(file.destination)
        return read_log_file(storage, file, job.keys)

    def _named_by_events(
        self, namings: list[dict[str, Any]], finished: Iterable[Mapping[str, Any]]
    ) -> Iterator[LogTable]:
        """Yield rows for tables that the feed's events name for the first time."""
        job = self._job
        known_ids = {row["table_id"] for row in namings}
        new_tables: dict[int, tuple[str, str, int]] = {}
        for table_id, db, name, ts in (
            table for partition_report in finished for table in partition_report.get("tables", ())
        ):
            if table_id not in known_ids:
                first_ts = min(ts, new_tables[table_id][2]) if table_id in new_tables else ts
                new_tables[table_id] = (db, name, first_ts)
        for table_id, (db, name, ts) in sorted(new_tables.items()):
            covered_from = min(job.resolved_ts or 0, ts) if job.tables.matches(db, name) else NEVER
            yield LogTable(
                backup_id=job.backup_id,
                source=job.source,
                table_id=table_id,
                db=db,
                name=name,
                from_ts=ts,
                action="create",
                covered_from=covered_from,
            )

    def _write_listing(
        self,
        table: Literal["log_regions", "log_tables"],
        batches: Iterable[pa.RecordBatch],
        checkpoint: int | None,
    ) -> DataFile:
        """Write rows of a table beside the backup, for its commit and a rebuild. Returns the row of that
        object."""
        job = self._job
        path = f"{job.folder}listing/{job.tasks:06d}-{self._attempt}.{table[4:]}.parquet"
        size, _, sha256 = write_rows(self._storage, path, ARROW_SCHEMAS[table], batches)
        return job.listing(
            table,
            path,
            size,
            sha256,
            ts_domain=job.feed.domain,
            # Events that were dropped count too.
            min_ts=self._seen_ts,
            max_ts=self._seen_ts,
            resolved_ts=checkpoint,
        )
