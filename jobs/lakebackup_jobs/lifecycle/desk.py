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
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.rows.base import Row
    from lakebackup.sql_engine.worker import PerNumber
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

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

    destination: str
    catalog: str | None
    storage: Storage
    recorded: bool

    def writer(self, spark: SparkSession | None) -> CatalogWriter:
        """The catalog; what a run that is not recorded writes to it goes nowhere."""
        if self.recorded:
            return CatalogWriter(spark, self.destination, self.catalog)
        return _Unrecorded(self.storage.uri)


@contextmanager
def desk(
    destination: str, catalog: str | None, lease: str, reporter: Reporter, *, ttl_s: float = 60.0
) -> Iterator[Desk]:
    """A desk while the block runs, with a lease where one can be taken. Raises Busy: another run has it."""
    storage = open_storage(destination)
    try:
        held = _taken(storage, destination, catalog, lease, ttl_s)
    except EnvironmentProblem as error:
        reporter.warning(f"{_NO_LEASE}: {error.message}")
        held = None
    if held is None:
        with tempfile.TemporaryDirectory(prefix="lakebackup-desk-") as folder:
            yield Desk(destination, catalog, open_storage(folder), recorded=False)
        return
    with held:
        yield Desk(destination, catalog, storage, recorded=True)


@contextmanager
def findings(
    spark: SparkSession, destination: str, catalog: str | None, reporter: Reporter
) -> Iterator[tuple[CatalogWriter, bool]]:
    """Where a check writes its rows while the block runs: the catalog, or tables of its own in a temporary
    folder where that cannot be written; and whether it is the catalog."""
    writer = CatalogWriter(spark, destination, catalog)
    try:
        writer.require_writable()
    except EnvironmentProblem as error:
        reporter.warning(f"what is found is not recorded: {error.message}")
        writable = False
    else:
        writable = True
    if writable:
        yield writer, True
        return
    with tempfile.TemporaryDirectory(prefix="lakebackup-findings-") as folder:
        writer = CatalogWriter(spark, folder)
        writer.migrate()
        yield writer, False


def _taken(storage: Storage, destination: str, catalog: str | None, name: str, ttl_s: float) -> Lease:
    held = Lease.acquire(storage, name, holder(), ttl_s=ttl_s)
    try:
        if catalog:  # elsewhere it may be read-only although the destination is not
            CatalogWriter(None, destination, catalog).require_writable()
    except EnvironmentProblem:
        held.release()
        raise
    return held
