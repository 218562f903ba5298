"""The draft of a snapshot's backup, and whether it can be resumed after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from lakebackup.formats.snapshots.compression import CodecChoice
from lakebackup.plan.snapshots.backup import Amount, Newest, Snapshot


@dataclass(frozen=True, slots=True)
class InProgress:
    """The draft of a backup, which is stored as JSON with these names.

    `asked` has the fields by which two requests are the same backup. `lasting` tells whether the snapshot has
    a name and so does not change; only then the backup can be resumed later. `codec`: how its tasks store
    files. `pruned` is the row of the query
    latest_prune at the time of the plan. `dealt` tells whether the plan that its tasks read is recorded.
    `started_at` is in us, `end_ts` in ms.
    """

    backup_id: str
    number: int
    started_at: int
    kind: Literal["full", "differential"]
    parent: str | None
    compared_with: str | None
    pruned: dict[str, int | None]
    snapshot: str
    lasting: bool
    end_ts: int
    tables: dict[str, int]
    amount: Amount
    tasks: int
    pack_below: int
    asked: dict[str, Any]
    dealt: bool = False
    codec: CodecChoice = "none"

    @property
    def level(self) -> int:
        return 0 if self.kind == "full" else 1

    def is_requested(self, request_fields: dict[str, Any], snapshot: Snapshot, end_ts: int) -> bool:
        """Return whether a request `request_fields` for this snapshot, as of `end_ts` (ms), asks for this
        backup."""
        return (request_fields, snapshot.id, end_ts) == (self.asked, self.snapshot, self.end_ts)

    def blocker(
        self,
        request_fields: dict[str, Any],
        next_snapshot: Snapshot | None,
        end_ts: int | None,
        newest: Newest | None,
        pruned: dict[str, Any],
        counted: Callable[[Snapshot], tuple[int, int]],
    ) -> str | None:
        """Return why the backup cannot be resumed; None if it can.

        `next_snapshot` is the snapshot to back up, as of `end_ts` (ms). `counted` returns the number of files
        and bytes of a snapshot; it is called last, since it lists the files.
        """
        if not self.dealt:
            return "it was not planned to its end"
        if not self.lasting:
            return "its layout names no snapshot, so the files may be others by now"
        if next_snapshot is None or next_snapshot.id != self.snapshot:
            return "another snapshot is asked for"
        if request_fields != self.asked:
            return "it is asked for in another way"
        if (newest.backup_id if newest else None) != self.compared_with:
            return "another backup was taken since"
        if pruned != self.pruned:
            return "a prune ran since, which may have deleted what it refers to"
        listed = (self.amount.listed, self.amount.listed_bytes)
        if next_snapshot.tables != self.tables or end_ts != self.end_ts or counted(next_snapshot) != listed:
            return "the snapshot is not what it was"
        return None
