"""Optimize the catalog: compact its tables, and delete files that no version within the retention needs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakebackup.errors import Refused
from lakebackup.requests import Request
from lakebackup.rows.tables import TABLES
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.storage import Storage, open_storage
from lakebackup.store.lease import held_leases
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import FOLDED
from lakebackup_jobs.lifecycle import leftovers
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore import job as restore_log

TableSize = dict[str, int]
DAY_MS = 86_400_000
# A job of this age is dead, even if no row says that it ended.
LONGEST_JOB_MS = 90 * DAY_MS
#: A shorter retention could delete files that a reader or a job still needs.
LEAST_RETENTION_MS = 7 * DAY_MS


@dataclass(frozen=True, slots=True)
class OptimizeRequest(Request):
    """What to optimize; all versions of the tables from the last `retain_ms` stay readable."""

    retain_ms: int = LEAST_RETENTION_MS


def run(request: OptimizeRequest, *, reporter: Reporter) -> dict[str, Any]:
    """Compact and clean each table, and delete the working files of ended runs.

    Returns the numbers of files and bytes before and after. Raises NotFound (no catalog), Refused (the
    retention is too short), Busy (another process writes).
    """
    work = Workspace(request, "", reporter)
    reader = CatalogReader.require(request.destination, request.catalog)
    retain_ms = _retention_ms(request.retain_ms, reader, work.storage)
    sizes_before = {table: _table_size(reader.catalog_uri, table) for table in TABLES}
    if request.dry_run:
        return {"dry_run": True, "retain_ms": retain_ms, **_summary(sizes_before, sizes_before)}
    restore_log.sweep(work)
    sources = {row["source"] for row in reader.rows("sources_known")}
    complete = {row["restore_id"] for row in reader.rows("complete_restores")}
    leftovers.sweep(work.storage, sources, complete)
    writer = work.writer()
    reporter.start(len(TABLES), None, "optimize", "tables")
    repeated = 0
    for number, table in enumerate(TABLES, 1):
        if table in FOLDED:
            writer.fold(table)
        commits, repeated_rows = writer.optimize(table, retain_ms=retain_ms)
        for commit in commits:
            reporter.warning(
                f"{commit} repeated rows of the catalog; let no other program compact its tables"
            )
        if commits:
            reporter.warning(f"{repeated_rows} repeated rows of table {table} were removed")
            repeated += repeated_rows
        reporter.update(number, 0)
    sizes_after = {table: _table_size(reader.catalog_uri, table) for table in TABLES}
    summary = _summary(sizes_before, sizes_after)
    return work.timed({"retain_ms": retain_ms, "repeated_rows": repeated, **summary})


def _retention_ms(retain_ms: int, reader: CatalogReader, storage: Storage) -> int:
    """Return the requested retention, or the age of the oldest running job if that is longer: the job may
    still read the version that was current when it started.

    The age of following does not count, since it reads the catalog again for each batch. Raises Refused for
    less than seven days.
    """
    if retain_ms < LEAST_RETENTION_MS:
        raise Refused(
            "A retention below 7 days could take files from a reader or a job that is still at work.",
            hint="Give --retain 7d or more.",
        )
    now_ms = time.time_ns() // 1_000_000
    start_times = [start_ms for name, start_ms in held_leases(storage) if not name.startswith("follow-")]
    start_times += [row["at"] // 1000 for row in reader.rows("open_restores")]
    oldest_age_ms = max(
        (now_ms - start_ms for start_ms in start_times if now_ms - start_ms < LONGEST_JOB_MS), default=0
    )
    return max(retain_ms, oldest_age_ms)


def _table_size(catalog_uri: str, table: str) -> TableSize:
    """Return the files and bytes of the table's newest version, and those in its folder."""
    uri = f"{catalog_uri}/{table}"
    log = f"{table}/_delta_log/"
    objects = [
        entry for entry in open_storage(catalog_uri).list(f"{table}/") if entry.path.endswith(".parquet")
    ]
    stored_sizes = [entry.bytes for entry in objects if not entry.path.startswith(log)]
    live_sizes = open_table(uri).get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return {
        "files": len(live_sizes),
        "bytes": sum(live_sizes),
        "stored_files": len(stored_sizes),
        "stored_bytes": sum(stored_sizes),
    }


def _summary(sizes_before: Mapping[str, TableSize], sizes_after: Mapping[str, TableSize]) -> dict[str, Any]:
    def change(tables: Iterable[str], *names: str) -> dict[str, int]:
        totals = {}
        for name in names:
            totals[name] = sum(sizes_before[table][name] for table in tables)
            totals[f"{name}_after"] = sum(sizes_after[table][name] for table in tables)
        return totals

    return {
        **change(TABLES, "files", "stored_bytes"),
        "tables": [
            {"table": table, **change([table], "files", "bytes", "stored_bytes")}
            for table in TABLES
            if sizes_before[table]["stored_files"]
        ],
    }
