"""Compact the catalog's tables, and delete files that no version within the retention needs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused, UsageProblem
from lakebackup.requests import Request
from lakebackup.rows.tables import TABLES
from lakebackup.storage import open_storage
from lakebackup.store.lease import held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import FOLDED
from lakebackup_jobs.lifecycle import leftovers
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore import job as restore_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

Held = dict[str, int]
DAY_MS = 86_400_000
# A job that old is dead, even if no row says that it ended.
LONGEST_JOB_MS = 90 * DAY_MS
#: A shorter retention could take files from under a reader or a job that is still at work.
LEAST_RETENTION_MS = 7 * DAY_MS


@dataclass(frozen=True, slots=True)
class OptimizeRequest(Request):
    """What to optimize; the tables' versions of the last `retain_ms` stay readable."""

    retain_ms: int = LEAST_RETENTION_MS


def run(request: OptimizeRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Compact each table and clean it, and delete working files that ended runs left; returns files and bytes
    before and after.

    Raises NotFound (no catalog), Refused (a retention that is too short), Busy (another process writes).
    """
    work = Workspace(request, "", reporter, spark)
    reader = CatalogReader.require(request.destination, request.catalog)
    retain_ms = _retention(request.retain_ms, reader, work.storage)
    if request.remote:
        raise UsageProblem("catalog optimize does not run over Spark Connect.", hint="Leave --remote out.")
    before = {table: _held(reader.catalog_uri, table) for table in TABLES}
    if request.dry_run:
        return {"dry_run": True, "retain_ms": retain_ms, **_summary(before, before)}
    restore_log.sweep(work)
    leftovers.sweep(work.storage, {row["source"] for row in reader.rows("sources_known")})
    writer = work.writer()
    reporter.start(len(TABLES), None, "optimize", "tables")
    for number, table in enumerate(TABLES, 1):
        if table in FOLDED:
            writer.fold(table)
        writer.optimize(table, retain_hours=retain_ms / 3_600_000)
        reporter.update(number, 0)
    after = {table: _held(reader.catalog_uri, table) for table in TABLES}
    return work.timed({"retain_ms": retain_ms, **_summary(before, after)})


def _retention(retain_ms: int, reader: CatalogReader, storage: Storage) -> int:
    """The retention that was asked for, or the age of the oldest running job, which may still read what was
    there when it started.

    Following reads the catalog again for each batch, so its age does not count. Refused below seven days.
    """
    if retain_ms < LEAST_RETENTION_MS:
        raise Refused(
            "A retention below 7 days could take files from a reader or a job that is still at work.",
            hint="Give --retain 7d or more.",
        )
    now = time.time_ns() // 1_000_000
    since_ms = [since for name, since in held(storage) if not name.startswith("follow-")]
    since_ms += [row["at"] // 1000 for row in reader.rows("open_restores")]
    oldest = max((now - since for since in since_ms if now - since < LONGEST_JOB_MS), default=0)
    return max(retain_ms, oldest)


def _held(catalog_uri: str, table: str) -> Held:
    """Files and bytes that the table's newest version reads, and those in its folder."""
    from lakebackup.sql_engine.delta.table import open_table

    uri = f"{catalog_uri}/{table}"
    log = f"{table}/_delta_log/"
    found = [one for one in open_storage(catalog_uri).list(f"{table}/") if one.path.endswith(".parquet")]
    stored = [one.bytes for one in found if not one.path.startswith(log)]
    sizes = open_table(uri).get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return {
        "files": len(sizes),
        "bytes": sum(sizes),
        "stored_files": len(stored),
        "stored_bytes": sum(stored),
    }


def _summary(before: Mapping[str, Held], after: Mapping[str, Held]) -> dict[str, Any]:
    def change(tables: Iterable[str], *names: str) -> dict[str, int]:
        found = {}
        for name in names:
            found[name] = sum(before[table][name] for table in tables)
            found[f"{name}_after"] = sum(after[table][name] for table in tables)
        return found

    return {
        **change(TABLES, "files", "stored_bytes"),
        "tables": [
            {"table": table, **change([table], "files", "bytes", "stored_bytes")}
            for table in TABLES
            if before[table]["stored_files"]
        ],
    }
