"""Reading backups needs no writing: what a restore does where the destination is read-only or full.

It then takes no lease, keeps its plan in a temporary folder of this machine, and leaves no row in the
catalog.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem
from lakebackup.storage import open_storage
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebackup.rows.base import Row
    from lakebackup.sql_engine.worker import PerNumber
    from lakebackup.storage import Storage
    from lakebackup.store.lease import Lease
    from lakebackup_jobs.lifecycle.workspace import Workspace

_NO_LEASE = "no lease could be taken, so that a prune may delete what is read, and this run is not recorded"


class _Unrecorded(CatalogWriter):
    """For a run that may not write to the catalog: what it would add goes nowhere. Its home is `folder`."""

    def __init__(self, folder: str) -> None:
        super().__init__(None, folder)

    def append(self, rows: Sequence[Row], transaction: str | None = None) -> None:
        """Nothing."""

    def append_read(self, table: str, source: PerNumber, tasks: int, transaction: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a run that reads backups writes what it needs: `storage` is the destination, or a temporary
    folder where that cannot be written; then the run is not `recorded`."""

    workspace: Workspace
    storage: Storage
    recorded: bool

    def writer(self) -> CatalogWriter:
        """The catalog; what a run that is not recorded writes to it goes nowhere."""
        return self.workspace.writer() if self.recorded else _Unrecorded(self.storage.uri)


@contextmanager
def desk(work: Workspace, lease: str) -> Iterator[Desk]:
    """A desk while the block runs, with a lease where one can be taken. Raises Busy: another run has it."""
    try:
        held = _taken(work, lease)
    except EnvironmentProblem as error:
        work.reporter.warning(f"{_NO_LEASE}: {error.message}")
    else:
        with held:
            yield Desk(work, work.storage, recorded=True)
        return
    with tempfile.TemporaryDirectory(prefix="lakebackup-desk-") as folder:
        yield Desk(work, open_storage(folder), recorded=False)


@contextmanager
def findings(work: Workspace) -> Iterator[tuple[CatalogWriter, bool]]:
    """Where a check writes its rows while the block runs: the catalog, or tables of its own in a temporary
    folder where that cannot be written; and whether it is the catalog."""
    writer = work.writer()
    try:
        writer.require_writable()
    except EnvironmentProblem as error:
        work.reporter.warning(f"what is found is not recorded: {error.message}")
    else:
        yield writer, True
        return
    with tempfile.TemporaryDirectory(prefix="lakebackup-findings-") as folder:
        writer = CatalogWriter(work.spark, folder)
        writer.migrate()
        yield writer, False


def _taken(work: Workspace, name: str) -> Lease:
    held = work.lease(name)
    try:
        if work.has_catalog_elsewhere:  # it may be read-only although the destination is not
            work.writer().require_writable()
    except EnvironmentProblem:
        held.release()
        raise
    return held
