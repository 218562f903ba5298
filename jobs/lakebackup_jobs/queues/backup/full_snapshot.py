"""The snapshot that a full of queues depends on: backed up by the job of snapshots, and held."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup.errors import Refused
from lakebackup.rows.upkeep import Hold
from lakebackup.rules import layout
from lakebackup.store import tombstones
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.queues.backup.request import read_report
from lakebackup_jobs.snapshots import backup as backup_snapshot

if TYPE_CHECKING:
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.workspace import Workspace
    from lakebackup_jobs.queues.backup.execute import InProgress
    from lakebackup_jobs.queues.backup.request import QueueRequest


class FullSnapshot:
    """The snapshots of one engine. `source`: the engine's."""

    def __init__(self, request: QueueRequest, workspace: Workspace) -> None:
        self._asked, self._work, self._source = request, workspace, workspace.source
        self._folder = self._identity()

    def take(self, draft: InProgress, reader: CatalogReader) -> str:
        """Have the snapshot backed up, and held: the full depends on it.

        Raises Busy (a prune is at work on the snapshots), Refused (one that was interrupted deletes it; the
        engine has put another snapshot there, which the full's positions are not of).
        """
        found = self.found(draft, reader)
        while found is None or not self._hold(found, draft):
            # Between the two a prune may have taken it: nothing held it yet.
            request = self.request(draft.note)
            found = str(
                backup_snapshot.run(
                    request,
                    spark=self._work.session or (lambda: self._work.spark),
                    reporter=self._work.reporter,
                )["backup_id"]
            )
            self._require_same(draft)
        return found

    def _require_same(self, draft: InProgress) -> None:
        mark = read_report(self._asked).mark
        if (mark, self._identity()) != (draft.asked.get("snapshot_is"), self._folder):
            raise Refused(
                f"{self._asked.snapshot} was replaced while its full was taken: the positions are those of "
                "the snapshot before.",
                hint="A snapshot must stay as it is until its full is complete. Run the command again.",
            )

    def _identity(self) -> tuple[int, int] | None:
        """What tells this folder from another in its place; None: none is named, or is readable here."""
        if self._asked.snapshot is None:
            return None
        try:
            found = Path(self._asked.snapshot).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

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
            runner=request.runner,
            local_below=request.local_below,
            parallelism=request.parallelism,
            bandwidth=request.bandwidth,
        )

    def found(self, draft: InProgress, reader: CatalogReader) -> str | None:
        """The backup of the snapshot that was made for a full."""
        source = layout.snapshot_source(self._source)
        found = reader.one("queue_snapshot", source=source, note=draft.note)
        return str(found["backup_id"]) if found else None

    def release(self, backup_id: str, draft: InProgress) -> None:
        """Hold the snapshot of a full that came to nothing no more; what a person holds stays held."""
        holds = self._work.reader().rows("hold_in_force", backup_id=backup_id)
        if any(row["reason"] == self._why(draft) for row in holds):
            self._tell(
                backup_id, f"the full {draft.backup_id} of {self._source} came to nothing", released=True
            )

    def _hold(self, backup_id: str, draft: InProgress) -> bool:
        """Hold it; False when it is there no more."""
        source = layout.snapshot_source(self._source)
        # A prune that is at work has looked at the holds already.
        with self._work.lease(f"source-{source}", wait_s=self._asked.lease_ttl_s):
            if self.found(draft, self._work.reader()) != backup_id:
                return False
            tombstones.require_not_pruned(self._work.storage, source, backup_id)
            self._tell(backup_id, self._why(draft))
            return True

    def _why(self, draft: InProgress) -> str:
        return f"the full {draft.backup_id} of {self._source} stands on it"

    def _tell(self, backup_id: str, reason: str, *, released: bool = False) -> None:
        row = Hold(
            backup_id=backup_id,
            source=layout.snapshot_source(self._source),
            at=time.time_ns() // 1000,
            actor=holder(),
            reason=reason,
            released=released,
        )
        self._work.writer().record(row)
