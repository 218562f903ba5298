"""The life of a restore, whatever its source and its target.

1. `restoring` takes the lease of the restore. It keeps away other runs of the same restore, and prunes of
   what the restore reads. If an earlier run of the same restore was interrupted, this one continues it.
2. The caller prepares the target. If the target cannot take the restore, no row is left.
3. `begin` records the restore as running, which later prunes respect, and then checks that no prune came in
   since the restore was planned.
4. The caller records its plan, runs the tasks and finishes the target. An error is recorded, and tells in
   which state the target is left.
5. `complete` writes the last row. Only after it may anything be deleted that a resumed run would need. If a
   run is killed before this row, and the target shows that it holds all, `complete_interrupted` writes it.

A run that cannot write to the repository has a temporary folder instead, and no lease. It leaves no row, and
it neither resumes a restore nor can be resumed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from lakebackup.errors import Busy, LakebackupError
from lakebackup.rows.upkeep import Restore
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.storage import Storage
from lakebackup.store import tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import audit_entry, holder
from lakebackup_jobs.lifecycle.scratch import Scratch, open_scratch
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.lifecycle.workspace import Workspace

State = Literal["running", "complete", "failed"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What the rows of a restore say of it. `selection` is the SQL that chose the files. Times are in ms."""

    source: str
    target: str
    selection: str
    from_ts: int | None = None
    to_ts: int | None = None


@dataclass(slots=True)
class RestoreRun:
    """A run of a restore, and the rows that it leaves in the catalog.

    `catalog` is the catalog from which the restore was planned. `key` is the same for all runs of one
    restore. It is part of the lease's name, so a prune finds the lease by it. `resumed` tells whether the run
    continues an interrupted one.
    """

    scratch: Scratch
    catalog: CatalogReader
    key: str
    restore_id: str
    resumed: bool
    writer: CatalogWriter = field(init=False)
    #: The state in the newest row; None: there is no row yet.
    state: State | None = field(default=None, init=False)
    _subject: Subject | None = field(default=None, init=False)
    _detail: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.writer = self.scratch.writer()

    @property
    def workspace(self) -> Workspace:
        return self.scratch.workspace

    @property
    def storage(self) -> Storage:
        """Where the run writes what it needs to be resumed."""
        return self.scratch.storage

    @property
    def folder(self) -> str:
        """The folder of the restore in `storage`."""
        return layout.restore_folder(self.restore_id)

    def audit(self, action: str, detail: object, subject: str | None = None) -> None:
        """Append an entry to the audit log. `subject` is what it concerns, by default the restore."""
        self.writer.append_audit(audit_entry(action, subject or self.restore_id, detail))

    def begin(self, subject: Subject, *needed: str, **detail: Any) -> None:
        """Record the restore as running, then check that no prune deletes what it reads.

        `needed` are the ids of the backups that it reads. `detail` are further facts for the rows. Raises
        Busy if a prune ran since the restore was planned, Refused if a prune of a `needed` backup was
        interrupted.
        """
        work, source = self.workspace, subject.source
        self._subject, self._detail = subject, {"digest": self.key, **detail, "runner": work.runner}
        self._append("running")
        # A later prune sees the row, and does not delete what the restore reads.
        newest_prune = work.reader().first_row("latest_prune", source=source)
        if newest_prune != self.catalog.first_row("latest_prune", source=source):
            raise Busy(
                f"A prune of {source} came in while this restore was being planned; nothing was restored.",
                hint="Run the same command again.",
            )
        if needed:
            tombstones.require_not_pruned(work.storage, source, *needed)

    def complete(
        self, outcomes: Sequence[RegionOutcome] = (), *, entries: int | None = None, size: int | None = None
    ) -> None:
        """Record the restore as complete: a row for each partition, or its totals. `size` is in bytes."""
        region = replace(self._row("running"), state="region_done", detail=None)
        regions = [replace(region, **asdict(outcome)) for outcome in outcomes]
        self._append("complete", *regions, entries=entries, bytes=size)

    def fail(self, problem: str) -> None:
        """Record that the restore failed."""
        self._detail["problem"] = problem
        self._append("failed")

    def complete_without_totals(self, restore_id: str, subject: Subject) -> None:
        """Record as complete a restore that wrote everything in an earlier run. Its totals are not known."""
        row = _row(restore_id, subject, "complete", {"digest": self.key})
        self.writer.append([row])

    def _append(self, state: State, *regions: Restore, **totals: Any) -> None:
        self.writer.append([*regions, replace(self._row(state), **totals)])
        self.state = state

    def _row(self, state: State) -> Restore:
        if self._subject is None:
            raise RuntimeError("A restore is recorded before it began.")
        return _row(self.restore_id, self._subject, state, self._detail)


def _row(restore_id: str, subject: Subject, state: State, detail: Mapping[str, Any]) -> Restore:
    return Restore(
        restore_id=restore_id,
        at=time.time_ns() // 1000,
        **asdict(subject),
        state=state,
        detail=json.dumps(detail),
        actor=holder(),
    )


@contextmanager
def restoring(
    work: Workspace,
    catalog: CatalogReader,
    key: str | None = None,
    *,
    target_state: Callable[[], str] = lambda: "",
) -> Iterator[RestoreRun]:
    """Hold the lease of a restore during the block, and record its failure.

    `catalog` and `key` are those of RestoreRun. If `key` is None, no interrupted run is continued.
    `target_state` returns a sentence on the state of the target when the block fails; it may be empty. Raises
    Busy.
    """
    new_id = layout.new_backup_id(datetime.now(UTC))
    with open_scratch(work, f"restore-{key or new_id}") as scratch:
        # A run that cannot write to the repository cannot continue what an earlier run left there.
        interrupted_id = unfinished(catalog, key) if scratch.recorded and key else None
        run = RestoreRun(scratch, catalog, key or new_id, interrupted_id or new_id, bool(interrupted_id))
        try:
            yield run
        except LakebackupError as error:
            if run.state == "running":
                run.fail(error.message)
                error.hint = f"{error.hint} {target_state()}".strip()
            raise
        except KeyboardInterrupt:
            if run.state == "running" and (state := target_state()):
                work.reporter.warning(state)
            raise


def complete_interrupted(work: Workspace, catalog: CatalogReader, key: str, subject: Subject) -> None:
    """Record the interrupted restore with this key as complete, because its target holds all of it.

    A run that is killed between its last write and its last row leaves such a restore. Does nothing when no
    restore with this key is unfinished. Raises Busy.
    """
    if unfinished(catalog, key):
        with restoring(work, catalog, key) as run:
            if run.resumed:
                run.complete_without_totals(run.restore_id, subject)


def key_of(*parts: Any) -> str:
    """Return the key of a restore, from the JSON values that identify it: what it restores, and its
    target."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def unfinished(catalog: CatalogReader, key: str) -> str | None:
    """Return the id of the restore with this key that was started and is not complete; None if there is
    none."""
    for row in catalog.rows("open_restores"):
        if object_of(row["detail"]).get("digest") == key:
            return str(row["restore_id"])
    return None
