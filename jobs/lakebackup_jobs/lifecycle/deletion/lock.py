"""What keeps a prune from files that are being read: a row of `restores` and a lease, until the end."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import Busy, LakebackupError
from lakebackup.rows.upkeep import Audit, Restore
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.desk import Desk, desk
from lakebackup_jobs.lifecycle.identity import holder, micros

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome


@contextmanager
def noted(
    spark: SparkSession | None,
    planned: CatalogReader,
    *,
    destination: str,
    catalog: str | None,
    source: str,
    target: str,
    selection: str,
    reporter: Reporter,
    from_ts: int | None = None,
    to_ts: int | None = None,
    audit: Audit | None = None,
) -> Iterator[tuple[Desk, dict[str, Any]]]:
    """While the block reads backups of a source, a prune of it is Busy. What the block puts into the dict
    (`entries`, `bytes`) is in the last row of `restores`. `audit`: an entry for the audit log.

    For reads that are not resumed when they are interrupted: nothing is held then. Raises Busy when a prune
    came in since `planned` was read.
    """
    now = datetime.now(UTC)
    restore_id = layout.new_backup_id(now)
    began = Restore(
        restore_id=restore_id,
        at=micros(now),
        source=source,
        state="running",
        target=target,
        from_ts=from_ts,
        to_ts=to_ts,
        selection=selection,
        detail=json.dumps({"digest": restore_id}),  # by which a prune finds the lease
    )

    with desk(destination, catalog, f"restore-{restore_id}", reporter) as place:
        writer = place.writer(spark)

        def put(state: Any, **counts: Any) -> None:
            writer.append([replace(began, at=micros(datetime.now(UTC)), state=state, **counts)])

        writer.append([began])
        if audit:
            writer.append_audit(audit)
        counts: dict[str, Any] = {}
        try:
            refuse_pruned_meanwhile(destination, catalog, source, planned)
            yield place, counts
        except LakebackupError:
            put("failed")
            raise
        put("complete", **counts)


def refuse_pruned_meanwhile(
    destination: str, catalog: str | None, source: str, planned: CatalogReader, *needed: str
) -> None:
    """Busy when a prune came between the plan and the row that says that this restore is at work; Refused
    when one that was interrupted deletes a backup that is `needed`.

    One that comes later sees the row, and spares what the restore reads.
    """
    now = CatalogReader(destination, catalog)
    if now.one("latest_prune", source=source) != planned.one("latest_prune", source=source):
        raise Busy(
            f"A prune of {source} came in while this restore was being planned; nothing was restored.",
            hint="Run the same command again.",
        )
    if needed:
        tombstones.require_not_pruned(open_storage(destination), source, *needed)


class Selected(Protocol):
    """The files that a plan chose: `selection` is the SQL, times in ms."""

    @property
    def source(self) -> str: ...
    @property
    def selection(self) -> str: ...
    @property
    def from_ts(self) -> int | None: ...
    @property
    def to_ts(self) -> int | None: ...


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
        self._writer, self._id, self._plan, self._target = writer, restore_id, made, target
        self._detail = detail

    def row(self, state: Any, problem: str | None = None) -> None:
        self._writer.append([self._row(state, problem=problem)])

    def finish(self, outcomes: Sequence[RegionOutcome]) -> None:
        regions = [self._row("region_done", outcome=outcome) for outcome in outcomes]
        self._writer.append([*regions, self._row("complete")])

    def audit(self, action: str, detail: list[str]) -> None:
        self._writer.append_audit(
            Audit(
                at=micros(datetime.now(UTC)),
                actor=holder(),
                action=action,
                subject=self._id,
                detail=json.dumps(detail),
            )
        )

    def _row(
        self, state: Any, *, outcome: RegionOutcome | None = None, problem: str | None = None
    ) -> Restore:
        return Restore(
            restore_id=self._id,
            at=micros(datetime.now(UTC)),
            source=self._plan.source,
            scope=outcome.scope if outcome else None,
            region=outcome.region if outcome else None,
            state=state,
            target=self._target,
            from_ts=self._plan.from_ts,
            to_ts=self._plan.to_ts,
            selection=self._plan.selection,
            position=outcome.position if outcome else None,
            entries=outcome.entries if outcome else None,
            bytes=outcome.bytes if outcome else None,
            detail=None
            if outcome
            else json.dumps({**self._detail, **({"problem": problem} if problem else {})}),
        )


def unfinished(reader: CatalogReader, digest: str) -> str | None:
    """The id of the restore with this digest that started and is not complete; None when there is none."""
    for row in reader.rows("open_restores"):
        if json.loads(row["detail"] or "{}").get("digest") == digest:
            return str(row["restore_id"])
    return None
