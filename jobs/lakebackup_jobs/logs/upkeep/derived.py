"""The base of the backups that are derived from a log while flushes continue: its fulls and compactions.

Such a backup gets its number only when it is published, as flushes take numbers meanwhile. Until then, its
tasks store the rows of their files in `made/` in its folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lakebackup.rows.backups import DataFile
from lakebackup.rows.base import CHANGES
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.parts import parts_of, run_tasks
from lakebackup_jobs.lifecycle.run import Parent, backup_row
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.lifecycle.tasks.part import Parts, PartTask
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.logs.feeds import ISOLATION

# How long publishing waits for the lease: as long as a flush may take.
_WAIT_S = 900.0


@dataclass(frozen=True, slots=True)
class InProgress:
    """A planned backup. It gets its `number` when it is published."""

    backup_id: str
    number: int = 0
    started_at: int = 0

    @classmethod
    def begin(cls) -> InProgress:
        """A new backup that starts now."""
        start_time = datetime.now(UTC)
        return cls(layout.new_backup_id(start_time), started_at=micros(start_time))


@dataclass(frozen=True, kw_only=True)
class WithoutNumber(Parts):
    """A backup whose tasks write files before it has a number."""

    number: int = 0

    def keep_apart(self, storage: Storage, task: int, rows: list[DataFile]) -> list[DataFile]:
        """Store the rows of a task's files until the backup has a number; returns those of the first try."""
        return sidecar.write_part(storage, layout.made_path(self.source, self.backup_id, task), rows)


@dataclass(frozen=True, kw_only=True)
class _Number(PartTask):
    """Writes the parts of a backup that has a number, from the rows that `keep_apart` stored."""

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        rows = sidecar.read_part(storage, layout.made_path(self.source, self.backup_id, task))
        return [replace(row, added_in=self.number) for row in rows]


class Derived(Source[InProgress]):
    """A backup that is derived from the log. A run that was interrupted starts over."""

    def resume_blocker(self, draft: InProgress) -> str | None:  # noqa: ARG002
        return f"a {self.WORD} starts over"

    @contextmanager
    def publishing(self, lease: Lease) -> Iterator[Lease]:  # noqa: ARG002
        """Hold the source's lease, so that flushes wait while the backup gets its number and is published."""
        with self.workspace.lease(wait_s=_WAIT_S) as source_lease:
            yield source_lease

    def numbered(self, draft: InProgress) -> tuple[InProgress, int, Totals]:
        """Give the draft its number and write its parts; returns the draft, their number and their totals."""
        work = self.workspace
        draft = replace(draft, number=latest_number(work.reader(), work.source) + 1)
        count = len(list(work.storage.list(layout.made_folder(work.source, draft.backup_id))))
        return draft, count, run_tasks(work, _Number(**parts_of(work, draft)), range(count))

    def described(
        self, draft: InProgress, parts: int, totals: Totals, continues: Parent | None, **columns: Any
    ) -> Manifest:
        """The manifest of the backup. Without positions, the next flush continues where the last one ended.

        `continues`: the backup that this one follows in its chain. `columns`: more columns of its row.
        """
        backup = backup_row(
            self.workspace,
            draft,
            totals,
            continues,
            **{"source_kind": CHANGES, "isolation": ISOLATION, **columns},
        )
        return Manifest(backup=backup, positions=[], scopes=[], gaps=[], parts=parts)

    def finish(self, draft: InProgress) -> None:
        self.workspace.empty(layout.made_folder(self.workspace.source, draft.backup_id))
