"""The snapshot that a full of queues stands on: backed up by the job of snapshots, and held."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakebackup.rows.upkeep import Hold
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.snapshots import backup as backup_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.queues.backup.request import QueueRequest
    from lakebackup_jobs.queues.backup.resume import Begun


class FullSnapshot:
    """The snapshots of one engine. `source`: the engine's."""

    def __init__(
        self, request: QueueRequest, source: str, spark: SparkSession | None, reporter: Reporter
    ) -> None:
        self._asked, self._source, self._spark, self._reporter = request, source, spark, reporter

    def take(self, begun: Begun, reader: CatalogReader) -> str:
        """Have the snapshot backed up, and held: the full stands on it.

        Raises Busy (a prune is at work on the snapshots), Refused (one that was cut off lets go of it).
        """
        found = self.found(begun, reader)
        while found is None or not self._hold(found, begun):
            # Between the two a prune may have taken it: nothing held it yet.
            request = self.request(begun.note)
            found = str(backup_snapshot.run(request, spark=self._spark, reporter=self._reporter)["backup_id"])
        return found

    def request(self, note: str) -> backup_snapshot.SnapshotRequest:
        request = self._asked
        return backup_snapshot.SnapshotRequest(
            destination=request.destination,
            paths=(str(request.snapshot),),
            catalog=request.catalog,
            source=layout.snapshot_source(self._source),
            lease_ttl_s=request.lease_ttl_s,
            note=note,
            remote=request.remote,
            parallelism=request.parallelism,
        )

    def found(self, begun: Begun, reader: CatalogReader) -> str | None:
        """The backup of the snapshot that was made for a full."""
        source = layout.snapshot_source(self._source)
        found = reader.one("queue_snapshot", source=source, note=begun.note)
        return str(found["backup_id"]) if found else None

    def release(self, backup_id: str, begun: Begun) -> None:
        """Hold the snapshot of a full that came to nothing no more; what a person holds stays held."""
        holds = self._reader().rows("hold_in_force", backup_id=backup_id)
        if any(row["reason"] == self._why(begun) for row in holds):
            self._tell(
                backup_id, f"the full {begun.backup_id} of {self._source} came to nothing", released=True
            )

    def _hold(self, backup_id: str, begun: Begun) -> bool:
        """Hold it; False when it is there no more."""
        source, asked = layout.snapshot_source(self._source), self._asked
        storage, ttl_s = open_storage(asked.destination), asked.lease_ttl_s
        # A prune that is at work has looked at the holds already.
        with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=ttl_s, wait_s=ttl_s):
            if self.found(begun, self._reader()) != backup_id:
                return False
            tombstones.require_staying(storage, source, backup_id)
            self._tell(backup_id, self._why(begun))
            return True

    def _why(self, begun: Begun) -> str:
        return f"the full {begun.backup_id} of {self._source} stands on it"

    def _reader(self) -> CatalogReader:
        return CatalogReader(self._asked.destination, self._asked.catalog)

    def _tell(self, backup_id: str, reason: str, *, released: bool = False) -> None:
        row = Hold(
            backup_id=backup_id,
            source=layout.snapshot_source(self._source),
            at=time.time_ns() // 1000,
            actor=holder(),
            reason=reason,
            released=released,
        )
        CatalogWriter.open(None, self._asked.destination, self._asked.catalog).tell(row)
