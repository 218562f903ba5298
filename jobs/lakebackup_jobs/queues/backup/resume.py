"""Whether an interrupted backup of queues can be resumed.

A resumed backup is completed as it was planned: it counts once, whatever came to the queues meanwhile. A
full is resumed only when its snapshot is backed up already, and no other is there by now; else its positions
would not be those of that snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebackup.plan.queues.backup import QueuePlan  # noqa: TC001 - read by pydantic
from lakebackup_jobs.topics.resume import unread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebackup.plan.partitions import RegionState
    from lakebackup.plan.queues.history import Continuation


@dataclass(frozen=True, slots=True)
class InProgress:
    """What a backup is going to be; `started_at` in us. `asked`: what makes two requests the same backup.

    `first`: (topic, partition, first number of a file) where the catalog had files already.
    """

    backup_id: str
    number: int
    started_at: int
    plan: QueuePlan
    asked: dict[str, Any]
    first: list[tuple[str, str, int]]

    @property
    def note(self) -> str:
        """By which the backup of a full's snapshot is found again."""
        return f"for the full {self.backup_id} of its queues"

    def blocker(
        self,
        asked: dict[str, Any],
        number: int,
        continuation: Continuation,
        regions: Iterable[RegionState],
        snapshot_id: str | None,
        done: set[int],
    ) -> str | None:
        """Why it cannot be resumed; None when it can. `number`: the next one's; `done`: tasks that are."""
        plan = self.plan
        if plan.kind == "full" and snapshot_id is None:
            return "its snapshot was not backed up yet"
        if number != self.number:
            return "another backup was taken since"
        if asked.get("snapshot_is") != self.asked.get("snapshot_is"):
            return "the engine's snapshot is another one now"
        if asked != self.asked:
            return "its options are different now"
        restored = continuation.restored.restore_id if continuation.restored else None
        parent = continuation.parent.backup_id if continuation.parent else None
        if restored != plan.restore_id or (plan.parent and parent != plan.parent.backup_id):
            return "the next backup depends on another one now"
        return unread(
            (span for task, ranges in enumerate(plan.tasks) if task not in done for span in ranges), regions
        )
