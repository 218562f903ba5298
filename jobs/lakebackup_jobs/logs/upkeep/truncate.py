"""Truncate the log of a change feed: delete the files that end before an instant and are not needed after it.

The order is that of a prune. The plan is written as rows beside the data, and then proven. The tombstone
makes the truncate exist. The floor, the states and the removals then exclude the files from the log. Last,
the objects are deleted, among them the `.meta` objects whose log files are all deleted. The next run resumes
an interrupted one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.errors import Busy
from lakebackup.plan.logs.flush import physical_ms, shown_ts, ts_at
from lakebackup.plan.logs.truncate import OF_THE_LOG, OLDER, Full, Retention, TruncatePlan, cut_of
from lakebackup.requests import Request
from lakebackup.rows.base import pick
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.rules.times import format_ts
from lakebackup.storage import Storage
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import is_held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.tombstones import Prune, removals_schema
from lakebackup_jobs.lifecycle.deletion.executor import Deletion
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace

# How long to wait for the lease of the source; a flush seldom holds it for longer.
_WAIT_S = 120.0
_META = re.compile(r"[0-9a-f]{16}-(?P<backup>[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8})(-[0-9]+)?\.meta")


@dataclass(frozen=True, slots=True)
class TruncateRequest(Request):
    """The options of a truncate. `until`: a ts in the feed's unit. Without `delete` nothing is deleted."""

    name: str
    until: int
    ranges_only: bool = False
    delete: bool = False


def keep_lease(name: str) -> str:
    """The name of the lease under which one run at a time deletes files of a log; flushes ignore it."""
    return f"log-keep-{name}"


def ts_of(destination: str, catalog: str | None, name: str, ms: int) -> int:
    """The ts of a time (ms since 1970 UTC) in the unit of a task's feed, or the time itself without a log.

    Raises NotFound (no catalog).
    """
    reader = CatalogReader.require(destination, catalog)
    state = reader.first_row("log_truncate_state", source=layout.check_source(name))
    return ts_at(ms, state["ts_domain"]) if state else ms


def run(request: TruncateRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Report what can be deleted, and with `delete` delete it; returns the summary.

    Raises NotFound (no such log), Refused (there is no place to cut, or the proof failed: nothing was
    deleted), Busy (a restore reads the log, or another run deletes its files) and Incomplete (objects could
    not be deleted).
    """
    layout.check_source(request.name)
    reader = current_catalog(request.destination, request.catalog)
    if not request.delete:
        return {"deleted": False, **_summary(_plan(request, reader))}
    work = Workspace(request, request.name, reporter, spark)
    with work.running("truncate", lease=keep_lease(request.name)) as lease:
        deletion = Deletion(work, "log truncate", lease, lambda: _unread(work))
        _unread(work)
        return deletion.run(lambda: _record(request, deletion))


def _record(request: TruncateRequest, deletion: Deletion) -> tuple[dict[str, Any], Prune | None]:
    """Plan and record the truncate; returns its summary, and the prune or None if there is nothing to do."""
    work = deletion.workspace
    # Under this lease, because whoever puts a backup on hold checks under it that no plan deletes the backup.
    with work.lease(wait_s=_WAIT_S) as lease:
        plan = _plan(request, work.reader())
        cut = plan.cut
        options = {"until": request.until, "cut": cut.cut, "full": cut.full}
        return _summary(plan), deletion.record(plan, options, lease)


def _plan(request: TruncateRequest, reader: CatalogReader) -> TruncatePlan:
    """Plan the truncate; writes nothing to the repository. Raises NotFound and Refused."""
    cut = cut_of(
        request.name,
        reader.first_row("log_truncate_state", source=request.name),
        [pick(Full, row) for row in reader.rows("log_fulls", source=request.name, to_ts=None)],
        until=request.until,
        ranges_only=request.ranges_only,
        retention=Retention(**(reader.first_row("log_truncate_kept", source=request.name) or {})),
    )
    # Which `.meta` objects go is known once it is known which log files go.
    plan = TruncatePlan(cut, (), removals_schema().empty_table())
    removals = plan.removals
    reader = plan.with_relations(reader).with_query("doomed_log", removals.name, **removals.parameters)
    emptied = {row["backup_id"] for row in reader.rows("log_truncate_emptied", **removals.parameters)}
    metas = pa.Table.from_pylist(list(_metas(reader.home, cut.source, emptied)), removals_schema())
    return replace(plan, totals=tuple(reader.rows("log_truncate_totals", source=cut.source)), metas=metas)


def _metas(storage: Storage, source: str, emptied: Set[str]) -> Iterator[dict[str, Any]]:
    """Yield the removals of the `.meta` objects of flushes that have no log files after the cut."""
    destination = destination_id(storage, create=False)
    for entry in storage.list(layout.stream_metas_folder(source)):
        match = _META.fullmatch(entry.path.rpartition("/")[2])
        if match and match["backup"] in emptied:
            yield {
                "source": source,
                "destination": destination,
                "path": entry.path,
                "backup_id": match["backup"],
                "scope": OF_THE_LOG,
                "epoch": OF_THE_LOG,
                "region": OF_THE_LOG,
                "bytes": 0,  # no backup counts them
                "reason": OLDER,
            }


def _unread(work: Workspace) -> frozenset[tuple[str, str, str]]:
    """Return no files to spare. Raises Busy when a restore reads the log.

    A restore that was killed has no lease any more, and starts over.
    """
    for row in work.reader().rows("prune_restores", source=work.source):
        digest = object_of(row["detail"]).get("digest")
        if digest is not None and is_held(work.storage, f"restore-{digest}"):
            raise Busy(
                f"Restore {row['restore_id']} reads the log of {work.source}, since "
                f"{format_ts(row['at'] // 1000)}.",
                hint="Wait until it is done. A restore that was killed holds its lease for a minute.",
            )
    return frozenset()


def _summary(plan: TruncatePlan) -> dict[str, Any]:
    cut, totals = plan.cut, plan.totals
    first = totals[0] if totals else {"of_files": 0, "of_bytes": 0}
    return {
        "source": cut.source,
        "cut": cut.cut,
        "cut_time": format_ts(physical_ms(cut.cut, cut.domain)),
        "restorable": f"after {shown_ts(cut.cut, cut.domain)}"
        + (f", starting from full {cut.full}" if cut.full else ", without a full")
        + (f" ({cut.note})" if cut.note else ""),
        "files": sum(row["files"] for row in totals),
        "bytes": sum(row["bytes"] for row in totals),
        "of_files": first["of_files"],
        "of_bytes": first["of_bytes"],
        "compacted_files": sum(row["files"] for row in totals if row["reason"] == "compacted"),
        "fulls": list(cut.leaving),
    }
