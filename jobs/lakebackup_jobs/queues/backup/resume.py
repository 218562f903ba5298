"""A backup of queues that is at work, put down: one that was cut off is gone on with or taken away.

What was begun is ended as it was planned: it counts once, whatever came to the queues meanwhile. A full goes
on only when its snapshot is backed up already, and no other lies there by now; else its positions would not
be those of that snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lakebackup.plan.queues.backup import QueuePlan  # noqa: TC001 - read by pydantic
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup_jobs.topics.resume import take_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebackup.plan.queues.history import Standing
    from lakebackup.plan.topics.backup import RegionState
    from lakebackup.storage import Storage


@dataclass(frozen=True, slots=True)
class Begun:
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

    def hindrance(
        self,
        asked: dict[str, Any],
        number: int,
        standing: Standing,
        regions: Iterable[RegionState],
        snapshot_id: str | None,
        done: set[int],
    ) -> str | None:
        """Why it is not gone on with; None when it is. `number`: the next one's; `done`: tasks that are."""
        plan = self.plan
        if plan.kind == "full" and snapshot_id is None:
            return "its snapshot was not backed up yet"
        if number != self.number:
            return "another backup came in since"
        if asked.get("snapshot_is") != self.asked.get("snapshot_is"):
            return "the engine's snapshot is another one by now"
        if asked != self.asked:
            return "it is asked for in another way"
        restored = standing.restored.restore_id if standing.restored else None
        parent = standing.parent.backup_id if standing.parent else None
        if restored != plan.restore_id or (plan.parent and parent != plan.parent.backup_id):
            return "the next backup stands on another one by now"
        now = {(r.scope, r.epoch, r.region): r for r in regions}
        for task, ranges in enumerate(plan.tasks):
            for span in ranges if task not in done else ():
                at = now.get((span.scope, span.epoch, span.region))
                if at is None or at.low > span.start or at.high < span.end:
                    return f"offsets that it has not read of topic {span.scope} are gone"
        return None


def begin(storage: Storage, source: str, begun: Begun) -> None:
    """Put it down, before anything is read."""
    content = _BEGUN.dump_python(begun, mode="json")
    sidecar.put_sealed(storage, layout.begun_path(source), {"format": layout.FORMAT, **content})


def found(storage: Storage, source: str) -> Begun | None:
    """What the last run of a source left; None when it came to its end."""
    return sidecar.get_record(storage, layout.begun_path(source), _BEGUN)


def stored(storage: Storage, source: str, backup_id: str) -> set[int]:
    """The tasks whose part is there."""
    folder = layout.parts_folder(source, backup_id)
    parts = (at.path.rpartition("/")[2].removesuffix(".jsonl") for at in storage.list(folder))
    return {int(name) for name in parts if name.isdigit()}


def end(storage: Storage, source: str, backup_id: str) -> None:
    """It is over: the backup exists. What its tasks saw goes."""
    for at in list(storage.list(layout.seen_folder(source, backup_id))):
        storage.delete(at.path)
    storage.delete(layout.begun_path(source))


def take_away(storage: Storage, source: str, begun: Begun) -> int:
    """Delete what a backup that is in no catalog has stored; how many files of messages. Can be repeated."""
    # The manifest first: without it no catalog that is made anew takes the backup for one.
    storage.delete(layout.manifest_path(source, begun.backup_id))
    places = {(s.epoch, s.scope, s.region) for task in begun.plan.tasks for s in task}
    count = take_files(storage, source, begun.backup_id, places, begun.first) if begun.plan.keep else 0
    for folder in (
        layout.queue_files_folder(source, begun.backup_id),
        layout.backup_folder(source, begun.backup_id),
    ):
        for at in list(storage.list(folder)):
            storage.delete(at.path)
    storage.delete(layout.begun_path(source))
    return count


_BEGUN = TypeAdapter(Begun)
