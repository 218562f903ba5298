"""Truncate the log of a change feed: delete what ends before an instant and is not needed from there on.

The order is that of a prune: the plan, as rows beside the data; the proof; the tombstone, with which the
truncate exists; the floor, the states and the removals, with which the files do not count any more; last the
objects, also `.meta` objects whose log files are all gone. The next run resumes one that was interrupted.
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

# A flush seldom holds the lease of the source for longer.
_WAIT_S = 120.0
_META = re.compile(r"[0-9a-f]{16}-(?P<backup>[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8})(-[0-9]+)?\.meta")
# Scope, epoch and region of rows about a whole log.
WHOLE = "-"


@dataclass(frozen=True, slots=True)
class TruncateRequest(Request):
    """What a person asked for; `until` in the feed's own unit. Without `delete` nothing is deleted."""

    name: str
    until: int
    ranges_only: bool = False
    delete: bool = False


def keep_lease(name: str) -> str:
    """The lease under which one run at a time deletes files of a task's log; flushes do not wait for it."""
    return f"log-keep-{name}"


def ts_of(destination: str, catalog: str | None, name: str, ms: int) -> int:
    """A time in ms since 1970 in the unit of a task's feed. Raises NotFound (no catalog, no log)."""
    reader = CatalogReader.require(destination, catalog)
    state = reader.one("log_truncate_state", source=layout.check_source(name))
    return ts_at(ms, state["ts_domain"]) if state else ms


def run(request: TruncateRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Report what can be deleted, and with `delete` delete it; returns the summary.

    Raises NotFound (no such log), Refused (nothing to cut at, the proof failed: nothing was deleted), Busy (a
    restore reads the log, another run deletes its files), Incomplete (objects could not be deleted).
    """
    layout.check_source(request.name)
    reader = current_catalog(request.destination, request.catalog)
    if not request.delete:
        cut = _cut(request, reader)
        return {"deleted": False, **_summary(cut, _totals(cut, reader, _asked(cut, "", 0)))}
    work = Workspace(request, request.name, reporter, spark)
    with work.running("truncate", lease=keep_lease(request.name)) as lease:
        return _Run(request, work, lease).truncate()


def _cut(request: TruncateRequest, reader: CatalogReader) -> LogCut:
    """Where the log is cut. Raises NotFound, Refused."""
    return cut_of(
        request.name,
        reader.one("log_truncate_state", source=request.name),
        [pick(Full, row) for row in reader.rows("log_fulls", source=request.name, to_ts=None)],
        until=request.until,
        ranges_only=request.ranges_only,
        kept=Kept(**(reader.one("log_truncate_kept", source=request.name) or {})),
    )


class _Run:
    """One truncate: first those that were interrupted are resumed, then what can be deleted now is."""

    def __init__(self, request: TruncateRequest, work: Workspace, lease: Lease) -> None:
        self.request, self.work = request, work
        self.deletion = Deletion(work, "log truncate", lease, self._unread)

    def truncate(self) -> dict[str, Any]:
        self._unread()
        return self.deletion.run(self._recorded)

    def _recorded(self) -> tuple[dict[str, Any], Prune | None]:
        # Whoever holds a backup looks, under this lease, whether it is about to go.
        with self.work.lease(wait_s=_WAIT_S) as lease:
            cut, totals, written = self._plan(lease)
        return _summary(cut, totals), written

    def _plan(self, lease: Lease) -> tuple[LogCut, list[dict[str, Any]], Prune | None]:
        """What can be deleted, proven and recorded; None: nothing."""
        reader = self.deletion.reader()
        cut = _cut(self.request, reader)
        now = datetime.now(UTC)
        prune_id, at = layout.new_backup_id(now), micros(now)
        asked = _asked(cut, prune_id, at)
        totals = _totals(cut, reader, asked)
        metas = list(self._metas(reader, cut, prune_id, at))
        if not totals and not metas and not cut.leaving and cut.cut == cut.floor:
            return cut, totals, None
        prune = Prune(
            prune_id=prune_id,
            at=at,
            actor=holder(),
            source=cut.source,
            asked=json.dumps({"until": self.request.until, "cut": cut.cut, "full": cut.full}),
            floors=(_floor(cut, prune_id, at),),
            chunks=(),
            backups=tuple((name, OLDER) for name in cut.leaving),
        )

        def prove() -> None:
            require_proof(reader.rows("log_truncate_proof", source=cut.source, cut=cut.cut))
            lease.renew()

        files = sum(row["files"] for row in totals)
        removals = Removals(reader, "log_truncate_files", asked, files, metas)
        return cut, totals, self.deletion.record(prune, removals, prove)

    def _metas(self, reader: CatalogReader, cut: LogCut, prune_id: str, at: int) -> Iterator[Removal]:
        """Rows for the `.meta` objects of the flushes of which no log file is left."""
        rows = reader.rows("log_truncate_emptied", source=cut.source, cut=cut.cut)
        emptied = {row["backup_id"] for row in rows}
        destination = destination_id(self.work.storage)
        for found in self.work.storage.list(layout.stream_metas_folder(cut.source)):
            name = _META.fullmatch(found.path.rpartition("/")[2])
            if name and name["backup"] in emptied:
                yield Removal(
                    prune_id=prune_id,
                    at=at,
                    source=cut.source,
                    destination=destination,
                    path=found.path,
                    backup_id=name["backup"],
                    scope=WHOLE,
                    epoch=WHOLE,
                    region=WHOLE,
                    bytes=0,  # no backup counts them
                    reason=OLDER,
                )

    def _unread(self) -> frozenset[tuple[str, str, str]]:
        """Nothing is spared. Raises Busy when a restore reads the log.

        One that was killed has no lease any more, and starts over.
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


def _totals(cut: LogCut, reader: CatalogReader, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What goes, by reason; the reader has it as the relation `doomed_log` too."""
    reader.give("leaving", leaving((name, OLDER) for name in cut.leaving))
    reader.define("doomed_log", "log_truncate_files", **asked)
    return reader.rows("log_truncate_totals", source=cut.source)


def _asked(cut: LogCut, prune_id: str, at: int) -> dict[str, Any]:
    return {"source": cut.source, "cut": cut.cut, "prune_id": prune_id, "at": at}


def _floor(cut: LogCut, prune_id: str, at: int) -> Floor:
    return Floor(
        prune_id=prune_id,
        at=at,
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
