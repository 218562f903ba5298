"""Protect the files that a restore reads from a prune: by a row of `restores` and a lease, until the restore
ends."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakebackup.errors import Busy, LakebackupError
from lakebackup.rows.upkeep import Audit, Restore
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.store import tombstones
from lakebackup_jobs.lifecycle.identity import audit_entry, holder
from lakebackup_jobs.lifecycle.scratch import Scratch, open_scratch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
    from lakebackup_jobs.lifecycle.workspace import Workspace

State = Literal["running", "complete", "failed"]


@contextmanager
def recorded_restore(
    work: Workspace,
    planned: CatalogReader,
    *,
    source: str,
    target: str,
    selection: str,
    from_ts: int | None = None,
    to_ts: int | None = None,
    audit: Audit | None = None,
) -> Iterator[tuple[Scratch, dict[str, Any]]]:
    """Record a restore while the block reads backups of a source. Meanwhile a prune of the source raises
    Busy.

    This is for restores that cannot be resumed. The last row of `restores` gets `entries` and `bytes` from
    the yielded dict. `audit` is appended to the audit log. Raises Busy if a prune ran since `planned` was
    read.
    """
    restore_id = layout.new_backup_id(datetime.now(UTC))
    selected = _SelectedFiles(source, selection, from_ts, to_ts)
    with open_scratch(work, f"restore-{restore_id}") as scratch:
        writer = scratch.writer()
        # A prune finds the lease by this digest.
        detail = {"digest": restore_id, "runner": work.runner}
        log = RestoreLog(writer, restore_id, selected, target, detail)
        log.row("running")
        if audit:
            writer.append_audit(audit)
        counts: dict[str, Any] = {}
        try:
            refuse_pruned_meanwhile(work, source, planned)
            yield scratch, counts
        except LakebackupError:
            log.row("failed")
            raise
        log.row("complete", **counts)


def refuse_pruned_meanwhile(work: Workspace, source: str, planned: CatalogReader, *needed: str) -> None:
    """Raise Busy if a prune ran between the plan and the row that records this restore as running; Refused if
    an interrupted prune deletes a `needed` backup.

    A later prune sees the row, and does not delete what the restore reads.
    """
    if work.reader().one("latest_prune", source=source) != planned.one("latest_prune", source=source):
        raise Busy(
            f"A prune of {source} came in while this restore was being planned; nothing was restored.",
            hint="Run the same command again.",
        )
    if needed:
        tombstones.require_not_pruned(work.storage, source, *needed)


class Selected(Protocol):
    """The files that a plan chose. `selection` is the SQL; times are ms."""

    @property
    def source(self) -> str: ...
    @property
    def selection(self) -> str: ...
    @property
    def from_ts(self) -> int | None: ...
    @property
    def to_ts(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class _SelectedFiles:
    """The files that a restore without a plan reads."""

    source: str
    selection: str
    from_ts: int | None
    to_ts: int | None


class RestoreLog:
    """The rows that a restore leaves in the catalog."""

    def __init__(
        self,
        writer: CatalogWriter,
        restore_id: str,
        made: Selected,
        target: str,
        detail: Mapping[str, Any],
    ) -> None:
        self._writer, self._detail = writer, detail
        self._started = Restore(
            restore_id=restore_id,
            at=0,
            source=made.source,
            state="running",
            target=target,
            from_ts=made.from_ts,
            to_ts=made.to_ts,
            selection=made.selection,
            actor=holder(),
        )

    def row(self, state: State, problem: str | None = None, **counts: int | None) -> None:
        self._writer.append([self._row(state, problem, **counts)])

    def finish(self, outcomes: Sequence[RegionOutcome]) -> None:
        regions = [
            replace(self._started, at=_time_us(), state="region_done", **asdict(outcome))
            for outcome in outcomes
        ]
        self._writer.append([*regions, self._row("complete")])

    def audit(self, action: str, detail: list[str]) -> None:
        self._writer.append_audit(audit_entry(action, self._started.restore_id, detail))

    def _row(self, state: State, problem: str | None = None, **counts: Any) -> Restore:
        detail = json.dumps({**self._detail, **({"problem": problem} if problem else {})})
        return replace(self._started, at=_time_us(), state=state, detail=detail, **counts)


def _time_us() -> int:
    return time.time_ns() // 1000


def unfinished(reader: CatalogReader, digest: str) -> str | None:
    """The id of the restore with this digest that was started and is not complete; None if there is none."""
    for row in reader.rows("open_restores"):
        if object_of(row["detail"]).get("digest") == digest:
            return str(row["restore_id"])
    return None
