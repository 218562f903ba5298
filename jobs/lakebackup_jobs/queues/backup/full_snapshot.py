"""The snapshot that a full of queues depends on: the job for snapshots backs it up, and a hold keeps it."""

from __future__ import annotations

import time
from pathlib import Path

from lakebackup.errors import Refused
from lakebackup.rows.upkeep import Hold
from lakebackup.rules import layout
from lakebackup.store import tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.draft import InProgress
from lakebackup_jobs.queues.backup.request import QueueRequest, read_report
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots.request import SnapshotRequest


class FullSnapshot:
    """Takes and holds the snapshot backups of one engine."""

    def __init__(self, request: QueueRequest, workspace: Workspace) -> None:
        self._request, self._work, self._source = request, workspace, workspace.source
        self._folder = self._identity()

    def take_backup(self, draft: InProgress, reader: CatalogReader) -> str:
        """Back up the snapshot, hold the backup, since the full depends on it, and return its id.

        Raises Busy (a prune is at work on the snapshots), Refused (an interrupted prune deletes the backup;
        or the engine has replaced the snapshot, so the positions of the full are not those of the new one).
        """
        snapshot_id = self.find_backup(draft, reader)
        while snapshot_id is None or not self._hold(snapshot_id, draft):
            # A prune may delete the backup before it is held; then it is taken again.
            request = self.request(draft.note)
            snapshot_id = str(
                backup_snapshot.run(
                    request,
                    spark=self._work.session or (lambda: self._work.spark),
                    reporter=self._work.reporter,
                )["backup_id"]
            )
            self._require_same(draft)
        return snapshot_id

    def _require_same(self, draft: InProgress) -> None:
        mark = read_report(self._request).mark
        if (mark, self._identity()) != (draft.asked.get("snapshot_is"), self._folder):
            raise Refused(
                f"{self._request.snapshot} was replaced while its full was taken: the positions are those of "
                "the snapshot before.",
                hint="A snapshot must stay as it is until its full is complete. Run the command again.",
            )

    def _identity(self) -> tuple[int, int] | None:
        """Return what distinguishes the folder from another one at the same path; None: no folder is named,
        or it cannot be read from here."""
        if self._request.snapshot is None:
            return None
        try:
            stat = Path(self._request.snapshot).stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def request(self, note: str) -> SnapshotRequest:
        request = self._request
        return SnapshotRequest(
            destination=request.destination,
            paths=(str(request.snapshot),),
            catalog=request.catalog,
            source=layout.snapshot_source(self._source),
            lease_ttl_s=request.lease_ttl_s,
            note=note,
            recipients=request.recipients,
            remote=request.remote,
            runner=request.runner,
            local_below=request.local_below,
            parallelism=request.parallelism,
            bandwidth=request.bandwidth,
        )

    def find_backup(self, draft: InProgress, reader: CatalogReader) -> str | None:
        """Return the id of the snapshot backup that was taken for a full; None: there is none."""
        source = layout.snapshot_source(self._source)
        row = reader.first_row("queue_snapshot", source=source, note=draft.note)
        return str(row["backup_id"]) if row else None

    def release(self, backup_id: str, draft: InProgress) -> None:
        """Release the hold on the snapshot of a full that was discarded; other holds stay."""
        holds = self._work.reader().rows("hold_in_force", backup_id=backup_id)
        if any(row["reason"] == self._reason(draft) for row in holds):
            self._record_hold(
                backup_id, f"the full {draft.backup_id} of {self._source} came to nothing", released=True
            )

    def _hold(self, backup_id: str, draft: InProgress) -> bool:
        """Hold a snapshot backup; return False when it no longer exists."""
        source = layout.snapshot_source(self._source)
        # The lease excludes a prune, which may have read the holds already.
        with self._work.lease(f"source-{source}", wait_s=self._request.lease_ttl_s):
            if self.find_backup(draft, self._work.reader()) != backup_id:
                return False
            tombstones.require_not_pruned(self._work.storage, source, backup_id)
            self._record_hold(backup_id, self._reason(draft))
            return True

    def _reason(self, draft: InProgress) -> str:
        return f"the full {draft.backup_id} of {self._source} stands on it"

    def _record_hold(self, backup_id: str, reason: str, *, released: bool = False) -> None:
        row = Hold(
            backup_id=backup_id,
            source=layout.snapshot_source(self._source),
            at=time.time_ns() // 1000,
            actor=holder(),
            reason=reason,
            released=released,
        )
        self._work.writer().record(row)
