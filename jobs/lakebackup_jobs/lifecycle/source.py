"""The interface between the lifecycle (`run.py`) and a kind of backup: the methods of a `Source`.

Backups of topics, snapshots and queues, merges and compactions are sources. To add one, write a class with
these methods. If it backs up a new kind of source, `lakebackup.rules.kinds` says what else that needs. The
lifecycle then takes the lease, resumes and discards interrupted runs, and publishes the backup.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from lakebackup.rows.backups import Backup
from lakebackup.rules import layout
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.lease import Lease
from lakebackup.store.manifest import Manifest
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace


class Draft(Protocol):
    """A planned backup, before it exists: a value that can be written as JSON and read again.

    `started_at` is in microseconds since 1970 UTC.
    """

    @property
    def backup_id(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def started_at(self) -> int: ...


D = TypeVar("D", bound=Draft)


class Source(ABC, Generic[D]):
    """One kind of backup of one source."""

    #: How a draft is recorded, so that a later run can resume or discard it; None: drafts are not recorded.
    DRAFT: ClassVar[TypeAdapter[Any] | None] = None
    #: What the lifecycle calls such a backup in messages.
    WORD: ClassVar[str] = "backup"
    #: Whether the draft is discarded when a task finds that its input is not what was planned.
    DISCARD_WHEN_REFUSED: ClassVar[bool] = False

    #: How the run encrypts its backups; None: it does not.
    encryption: RunEncryption | None = None

    #: The lease of the run. A long step may renew it before it writes.
    lease: Lease

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    @property
    def record_path(self) -> str:
        """The path of the object that holds the draft until its backup exists."""
        return layout.in_progress_path(self.workspace.source)

    def folder(self, draft: D) -> str:
        """Return the folder of a draft's manifest, and of the plan that its tasks read."""
        return layout.backup_folder(self.workspace.source, draft.backup_id)

    def prepare(self, draft: D) -> D:
        """Store the input of the tasks. Returns the draft that can be resumed from then on."""
        return draft

    @abstractmethod
    def resume_blocker(self, draft: D) -> str | None:
        """Return why an interrupted backup cannot be resumed; None if it can."""

    @abstractmethod
    def copy(self, draft: D) -> Totals:
        """Run the tasks, and return their totals. Tasks that an earlier run completed are not run again."""

    @abstractmethod
    def manifest(self, draft: D, totals: Totals) -> Manifest:
        """Return the manifest of the backup: the rows with which it is published."""

    @abstractmethod
    def discard(self, draft: D) -> int:
        """Delete the data files of a backup that is in no catalog. Returns how many. Can be repeated."""

    @contextmanager
    def publishing(self, lease: Lease) -> Iterator[Lease]:
        """Yield the lease under which the backup is published: `lease`, which the run holds, or another
        one."""
        yield lease

    def finish(self, draft: D) -> None:
        """Delete what only the run needed, once the backup exists. Can be repeated."""

    @abstractmethod
    def result(self, draft: D, backup: Backup) -> dict[str, Any]:
        """Return a summary of the backup, which exists now, for the user."""

    def matches_request(self, draft: D) -> bool:  # noqa: ARG002
        """Return whether the request is for the backup of `draft`. If it is, this run returns that backup and
        takes no other. Called when an earlier run published the backup but did not delete the draft."""
        return False
