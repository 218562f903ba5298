"""The draft of a backup of an engine's queues: what is recorded before it is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakebackup.plan.queues.backup import QueuePlan

ISOLATION = "read_committed"


@dataclass(frozen=True, slots=True)
class InProgress:
    """The draft of a backup; `started_at` in us. `asked`: the options that make two requests the same backup.

    `first`: (topic, partition, number of its first new file) for partitions with files in the catalog.
    """

    backup_id: str
    number: int
    started_at: int
    plan: QueuePlan
    asked: dict[str, Any]
    first: list[tuple[str, str, int]]

    @property
    def note(self) -> str:
        """The note by which the backup of the full's snapshot can be found again."""
        return f"for the full {self.backup_id} of its queues"
