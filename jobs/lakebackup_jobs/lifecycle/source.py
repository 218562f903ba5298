"""A kind of backup as the lifecycle asks it: what there is to do, and what comes of it.

Backups of topics, snapshots and queues, merges and compactions are sources. To add a kind, write a class of
these methods and a line in `lakebackup.rules.kinds.KINDS`; locks, resuming, publishing and discarding come
with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from lakebackup.rules import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import TypeAdapter

    from lakebackup.rows.backups import Backup
    from lakebackup.store.lease import Lease
    from lakebackup.store.manifest import Manifest
    from lakebackup_jobs.lifecycle.tasks.totals import Totals
    from lakebackup_jobs.lifecycle.workspace import Workspace


class Draft(Protocol):
    """A backup that is planned, before it exists: a value that can be written as JSON and read again.

    `started_at` in us since 1970 UTC.
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

    #: How a draft is recorded, so that a later run can resume or discard it; None: it is not.
    DRAFT: ClassVar[TypeAdapter[Any] | None] = None
    #: What the lifecycle calls it in messages.
    WORD: ClassVar[str] = "backup"
    #: Whether all is discarded when a task finds that what it reads is not what was planned.
    DISCARD_WHEN_REFUSED: ClassVar[bool] = False

    #: Of the run; a step that is long may renew it before it writes.
    lease: Lease

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    @property
    def record_path(self) -> str:
        """The object that holds the draft while it is worked on."""
        return layout.in_progress_path(self.workspace.source)

    @abstractmethod
    def plan(self) -> D | None:
        """The next backup; None: there is nothing to do."""

    def prepare(self, draft: D) -> D:
        """Write what the tasks read; the draft as it can be resumed from then on."""
        return draft

    @abstractmethod
    def resume_blocker(self, draft: D) -> str | None:
        """Why an interrupted backup cannot be resumed; None: it can."""

    @abstractmethod
    def copy(self, draft: D) -> Totals:
        """Run the tasks. Those that were done before are found to be done."""

    @abstractmethod
    def manifest(self, draft: D, totals: Totals) -> Manifest:
        """The rows of the backup that now exists but for them."""

    @abstractmethod
    def discard(self, draft: D) -> int:
        """Delete the data files of a backup that is in no catalog; returns how many. Can be repeated."""

    @contextmanager
    def publishing(self, lease: Lease) -> Iterator[Lease]:
        """The lease under which the backup is published: `lease`, which the run holds, or another one."""
        yield lease

    def finish(self, draft: D) -> None:
        """Delete what only the run itself needed, once the backup exists. Can be repeated."""

    @abstractmethod
    def result(self, draft: D, backup: Backup) -> dict[str, Any]:
        """What a person wants to know of a backup that exists."""

    def is_asked_for(self, draft: D) -> bool:  # noqa: ARG002
        """Whether the request asks for just that backup, whose run was interrupted at the very end."""
        return False
