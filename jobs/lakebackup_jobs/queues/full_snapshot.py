"""The snapshot that a full of queues stands on: backed up by the job of snapshots, and held."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakebackup import layout
from lakebackup.model import Hold
from lakebackup.store import CatalogWriter
from lakebackup_jobs import backup_snapshot
from lakebackup_jobs.identity import holder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup.store import CatalogReader
    from lakebackup_jobs.progress import Reporter
    from lakebackup_jobs.queues.begun import Begun
    from lakebackup_jobs.queues.request import QueueRequest


class FullSnapshot:
    """The snapshots of one engine. `source`: the engine's."""

    def __init__(
        self, request: QueueRequest, source: str, spark: SparkSession | None, reporter: Reporter
    ) -> None:
        self._asked, self._source, self._spark, self._reporter = request, source, spark, reporter

    def take(self, begun: Begun, reader: CatalogReader) -> str:
        """Have the snapshot backed up, and held: the full stands on it."""
        found = self.found(begun, reader)
        if found is None:
            request = self.request(begun.note)
            found = str(backup_snapshot.run(request, spark=self._spark, reporter=self._reporter)["backup_id"])
        self.hold(found, f"the full {begun.backup_id} of {self._source} stands on it")
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

    def hold(self, backup_id: str, reason: str, *, released: bool = False) -> None:
        row = Hold(
            backup_id=backup_id,
            source=layout.snapshot_source(self._source),
            at=time.time_ns() // 1000,
            actor=holder(),
            reason=reason,
            released=released,
        )
        CatalogWriter.open(None, self._asked.destination, self._asked.catalog).tell(row)
