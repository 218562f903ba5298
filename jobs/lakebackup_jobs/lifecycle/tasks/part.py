"""What the tasks of a backup have in common: each writes its files once and lists them in its part.

The part is the task's commit: of two attempts the first counts, and a task that ran before is not run again.
No row of a file goes through the driver.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.storage import Storage, open_storage
from lakebackup.store.delta_append import LISTED
from lakebackup.store.manifest import read_part, write_part
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, Totals, totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup_jobs.lifecycle.run import Parent
    from lakebackup_jobs.lifecycle.source import Draft
    from lakebackup_jobs.lifecycle.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The backup that tasks write parts of. `uri`: of the destination, whose id is `destination`."""

    uri: str
    destination: str
    source: str
    backup_id: str
    number: int
    level: int = 0
    parent: str | None = None

    @property
    def folder(self) -> str:
        """Where the backup describes itself."""
        return layout.backup_folder(self.source, self.backup_id)

    def once(self, storage: Storage, task: int, write: Callable[[], list[DataFile]]) -> list[DataFile]:
        """The rows of a task's part, which `write` makes if no attempt has put it yet."""
        part = layout.parts_path(self.source, self.backup_id, task)
        try:
            rows = read_part(storage, part)
        except NotFound:
            return write_part(storage, part, write())
        self.check(storage, rows)
        return rows

    def check(self, storage: Storage, rows: list[DataFile]) -> None:
        """Raise Damaged when what an earlier attempt wrote cannot be used."""

    def progress(self, storage: Storage, task: int, prefix: str = "") -> Callable[[int, int], None]:
        """Reports records and bytes that one task is done with."""
        return TaskProgress(storage, self.folder).counter(f"{prefix}{task:06d}")

    def row(self, **columns: Any) -> DataFile:
        """The row of a file of this backup."""
        constant = {
            "destination": self.destination,
            "backup_id": self.backup_id,
            "added_in": self.number,
            "source": self.source,
            "level": self.level,
            "parent": self.parent,
        }
        return DataFile(**{**constant, **columns})

    def listing(self, table: str, path: str, size: int, sha256: str, **columns: Any) -> DataFile:
        """The row of an object that holds rows of a table."""
        constant: dict[str, Any] = {
            "path": path,
            "scope": "",
            "epoch": "-",
            "region": "",
            "role": "meta",
            "format": LISTED[table],
            "codec": "null",
            "bytes": size,
            "raw_bytes": size,
            "sha256": sha256,
            "entries": 0,
            "min_ts": 0,
            "max_ts": 0,
            "start_position": 0,
            "end_position": 1,
        }
        return self.row(**{**constant, **columns})


def parts_of(work: Workspace, draft: Draft, level: int = 0, parent: Parent | None = None) -> dict[str, Any]:
    """The fields of the Parts of a draft; `parent`: the backup that it continues."""
    return {
        "uri": work.storage.uri,
        "destination": work.destination,
        "source": work.source,
        "backup_id": draft.backup_id,
        "number": draft.number,
        "level": level,
        "parent": parent.backup_id if parent else None,
    }


@dataclass(frozen=True, kw_only=True)
class PartTask(Parts, Task):
    """What every task of one backup does, on Spark or in this process."""

    COLUMNS = OUTCOME

    def run(self, number: int) -> dict[str, Any]:
        storage = open_storage(self.uri)
        return totals(number, self.once(storage, number, lambda: self.write(storage, number)))

    @abstractmethod
    def write(self, storage: Storage, task: int) -> list[DataFile]:
        """Write the files of a task; their rows."""


def run_tasks(workspace: Workspace, job: PartTask, tasks: range, *, at_once: int | None = None) -> Totals:
    """Run tasks on the workspace's runner; what they wrote. `at_once`: no more than so many side by side.

    Raises the first error that a task reported.
    """
    found, report = Totals(), workspace.reporter
    if not tasks:
        return found
    with workspace.task_progress(job.folder).watched(report.update, report.warning):
        if workspace.runner == "local":
            processors = os.cpu_count() or 1
            found.add(run_all(job, tasks, None, min(at_once or processors, processors)))
        else:
            found.add(run_all(job, tasks, workspace.cluster, at_once))
    report.update(found.entries, found.bytes)
    return found
