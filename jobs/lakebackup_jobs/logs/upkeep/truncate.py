"""Truncate the log of a change feed: delete the files that end before an instant and are not needed after it.

The order is that of a prune. The plan is written as rows beside the data, and then proven. The tombstone
makes the truncate exist. The floor, the states and the removals then exclude the files from the log. Last,
the objects are deleted, among them the `.meta` objects whose log files are all deleted. The next run resumes
an interrupted one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy
from lakebackup.plan.logs.flush import physical_ms, shown_ts, ts_at
from lakebackup.plan.logs.truncate import OLDER, Full, Kept, LogCut, cut_of, require_proof
from lakebackup.plan.upkeep.prune import leaving
from lakebackup.requests import Request
from lakebackup.rows.backups import Floor, Removal
from lakebackup.rows.base import pick
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.rules.times import format_ts
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import is_held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.tombstones import Prune
from lakebackup_jobs.lifecycle.deletion.executor import Deletion, Removals
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.store.lease import Lease
    from lakebackup_jobs.lifecycle.progress import Reporter

# How long to wait for the lease of the source; a flush seldom holds it for longer.
_WAIT_S = 120.0
_META = re.compile(r"[0-9a-f]{16}-(?P<backup>[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8})(-[0-9]+)?\.meta")
# The scope, epoch and region in rows about a whole log.
WHOLE = "-"


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
    state = reader.one("log_truncate_state", source=layout.check_source(name))
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
        cut = _cut(request, reader)
        return {
            "deleted": False,
            **_summary(cut, _totals(cut, _with_doomed(cut, reader, _parameters(cut, "", 0)))),
        }
    work = Workspace(request, request.name, reporter, spark)
    with work.running("truncate", lease=keep_lease(request.name)) as lease:
        return _Run(request, work, lease).truncate()


def _cut(request: TruncateRequest, reader: CatalogReader) -> LogCut:
    """The cut of the log. Raises NotFound and Refused."""
    return cut_of(
        request.name,
        reader.one("log_truncate_state", source=request.name),
        [pick(Full, row) for row in reader.rows("log_fulls", source=request.name, to_ts=None)],
        until=request.until,
        ranges_only=request.ranges_only,
        kept=Kept(**(reader.one("log_truncate_kept", source=request.name) or {})),
    )


class _Run:
    """One run: it resumes interrupted truncates, and then deletes what can be deleted now."""

    def __init__(self, request: TruncateRequest, work: Workspace, lease: Lease) -> None:
        self.request, self.work = request, work
        self.deletion = Deletion(work, "log truncate", lease, self._unread)

    def truncate(self) -> dict[str, Any]:
        self._unread()
        return self.deletion.run(self._record_plan)

    def _record_plan(self) -> tuple[dict[str, Any], Prune | None]:
        # Under this lease, because whoever puts a backup on hold checks under it that no plan deletes the
        # backup.
        with self.work.lease(wait_s=_WAIT_S) as lease:
            cut, totals, prune = self._plan(lease)
        return _summary(cut, totals), prune

    def _plan(self, lease: Lease) -> tuple[LogCut, list[dict[str, Any]], Prune | None]:
        """The cut, the totals of what it deletes, and the recorded prune; None: there is nothing to do."""
        reader = self.deletion.reader()
        cut = _cut(self.request, reader)
        start_time = datetime.now(UTC)
        prune_id, time_us = layout.new_backup_id(start_time), micros(start_time)
        parameters = _parameters(cut, prune_id, time_us)
        reader = _with_doomed(cut, reader, parameters)
        totals = _totals(cut, reader)
        metas = list(self._metas(reader, cut, prune_id, time_us))
        if not totals and not metas and not cut.leaving and cut.cut == cut.floor:
            return cut, totals, None
        prune = Prune(
            prune_id=prune_id,
            at=time_us,
            actor=holder(),
            source=cut.source,
            asked=json.dumps({"until": self.request.until, "cut": cut.cut, "full": cut.full}),
            floors=(_floor(cut, prune_id, time_us),),
            chunks=(),
            backups=tuple((name, OLDER) for name in cut.leaving),
        )

        def prove(reader: CatalogReader) -> None:
            require_proof(reader.rows("log_truncate_proof", source=cut.source, cut=cut.cut))
            lease.renew()

        files = sum(row["files"] for row in totals)
        removals = Removals(reader, "log_truncate_files", parameters, files, metas)
        return cut, totals, self.deletion.record(prune, removals, prove)

    def _metas(self, reader: CatalogReader, cut: LogCut, prune_id: str, time_us: int) -> Iterator[Removal]:
        """Removals of the `.meta` objects of flushes that have no log files after the cut."""
        rows = reader.rows("log_truncate_emptied", source=cut.source, cut=cut.cut)
        emptied = {row["backup_id"] for row in rows}
        destination = destination_id(self.work.storage)
        for entry in self.work.storage.list(layout.stream_metas_folder(cut.source)):
            match = _META.fullmatch(entry.path.rpartition("/")[2])
            if match and match["backup"] in emptied:
                yield Removal(
                    prune_id=prune_id,
                    at=time_us,
                    source=cut.source,
                    destination=destination,
                    path=entry.path,
                    backup_id=match["backup"],
                    scope=WHOLE,
                    epoch=WHOLE,
                    region=WHOLE,
                    bytes=0,  # no backup counts them
                    reason=OLDER,
                )

    def _unread(self) -> frozenset[tuple[str, str, str]]:
        """Returns no files to spare. Raises Busy when a restore reads the log.

        A restore that was killed has no lease any more, and starts over.
        """
        for row in self.work.reader().rows("prune_restores", source=self.request.name):
            digest = object_of(row["detail"]).get("digest")
            if digest is not None and is_held(self.work.storage, f"restore-{digest}"):
                raise Busy(
                    f"Restore {row['restore_id']} reads the log of {self.request.name}, since "
                    f"{format_ts(row['at'] // 1000)}.",
                    hint="Wait until it is done. A restore that was killed holds its lease for a minute.",
                )
        return frozenset()


def _with_doomed(cut: LogCut, reader: CatalogReader, parameters: Mapping[str, Any]) -> CatalogReader:
    """The reader with the relations `leaving` (fulls) and `doomed_log` (files): what the cut deletes."""
    reader = reader.with_rows("leaving", leaving((name, OLDER) for name in cut.leaving))
    return reader.with_query("doomed_log", "log_truncate_files", **parameters)


def _totals(cut: LogCut, reader: CatalogReader) -> list[dict[str, Any]]:
    """The totals of the files to delete, by reason, from a reader of `_with_doomed`."""
    return reader.rows("log_truncate_totals", source=cut.source)


def _parameters(cut: LogCut, prune_id: str, time_us: int) -> dict[str, Any]:
    return {"source": cut.source, "cut": cut.cut, "prune_id": prune_id, "at": time_us}


def _floor(cut: LogCut, prune_id: str, time_us: int) -> Floor:
    return Floor(
        prune_id=prune_id,
        at=time_us,
        source=cut.source,
        scope=WHOLE,
        epoch=WHOLE,
        region=WHOLE,
        low_position=cut.cut,
        reason=OLDER,
    )


def _summary(cut: LogCut, totals: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
