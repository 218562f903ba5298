"""Opens the storage that restores and checks write to while they run.

That is the destination. If it is read-only or nearly full, it is a temporary folder; then the run takes no
lease and leaves no row in the catalog.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lakebackup.errors import EnvironmentProblem
from lakebackup.rows.base import Row
from lakebackup.sql_engine.delta.log import folder_of
from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import Storage, open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.workspace import Workspace

# The free bytes that a restore needs in the destination for its plan and rows.
_RESERVE_BYTES = 1 << 20
_NO_LEASE = "no lease could be taken: a prune may delete what is read, and this run is not recorded"


class _DiscardingWriter(CatalogWriter):
    """A writer that discards all rows, for a run that cannot write to the catalog; its URI is `folder`."""

    def __init__(self, folder: str) -> None:
        super().__init__(None, folder)

    def append(self, rows: Sequence[Row], transaction: str | None = None, *, wait_s: float = 0) -> None:
        """Discard the rows."""

    def append_read(
        self, table: str, source: PerNumber, tasks: int, transaction: str, *, in_process: bool | None = None
    ) -> None:
        """Discard the rows."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where a run that reads backups writes its plan. `storage` is the destination, or a temporary folder if
    the destination is not writable. `recorded`: whether the run writes its rows to the catalog."""

    workspace: Workspace
    storage: Storage
    recorded: bool

    def writer(self) -> CatalogWriter:
        """The writer of the catalog, or one that discards all rows when the run is not recorded."""
        return self.workspace.writer() if self.recorded else _DiscardingWriter(self.storage.uri)


@contextmanager
def open_scratch(work: Workspace, lease: str) -> Iterator[Scratch]:
    """Yield the scratch storage, and hold the lease while the block runs if the destination is writable.

    Raises Busy.
    """
    try:
        scratch_lease = _acquire(work, lease)
    except EnvironmentProblem as error:
        work.reporter.warning(f"{_NO_LEASE}: {error.message}")
    else:
        with scratch_lease:
            yield Scratch(work, work.storage, recorded=True)
        return
    with tempfile.TemporaryDirectory(prefix="lakebackup-scratch-") as folder:
        yield Scratch(work, open_storage(folder), recorded=False)


@contextmanager
def findings_writer(work: Workspace) -> Iterator[tuple[CatalogWriter, bool]]:
    """Yield the writer for the rows of a check, and whether it writes to the catalog.

    If the catalog is not writable, the rows go to tables in a temporary folder, which is deleted after the
    block.
    """
    writer = work.writer()
    try:
        writer.require_writable()
    except EnvironmentProblem as error:
        work.reporter.warning(f"findings are not recorded: {error.message}")
    else:
        yield writer, True
        return
    with tempfile.TemporaryDirectory(prefix="lakebackup-findings-") as folder:
        writer = CatalogWriter(None, folder)
        writer.migrate()
        yield writer, False


def _require_room(storage: Storage) -> None:
    """Raise EnvironmentProblem if the disk has no room for a restore's plan and rows.

    This is checked first, since the restore would otherwise fail halfway.
    """
    folder = folder_of(storage.uri)
    if folder is None:
        return
    free = shutil.disk_usage(folder).free
    if free < _RESERVE_BYTES:
        raise EnvironmentProblem(f"The disk of {folder} has {free // 1024:,} KiB free.")


def _acquire(work: Workspace, name: str) -> Lease:
    """Take the lease. Raises Busy; EnvironmentProblem if the destination or the catalog is not writable."""
    _require_room(work.storage)
    lease = work.lease(name)
    try:
        if work.has_catalog_elsewhere:  # that catalog may be read-only although the destination is writable
            work.writer().require_writable()
    except EnvironmentProblem:
        lease.release()
        raise
    return lease
