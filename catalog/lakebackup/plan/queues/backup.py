"""Plans which offsets of an engine's queues the next backup reads. Pure.

A full holds no messages. It holds the position of the engine's snapshot in each partition, and the
transactions that were open then. A backup that continues it holds every message from these positions on, and
the earlier messages of the transactions that were open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from lakebackup.errors import NeedsFull, Refused
from lakebackup.formats.queues.snapshot_json import SnapshotJson
from lakebackup.plan import splits
from lakebackup.plan.partitions import BackupRows, PartitionKey, Range, RegionState, TopicState
from lakebackup.plan.queues.history import TAKE_FULL, Continuation, Start
from lakebackup.plan.topics.backup import Parent
from lakebackup.rows.backups import Gap, Position, Scope

# Up to this many offsets are one task.
_ONE_TASK = 2_000_000
_NO_SNAPSHOT = (
    "there is no snapshot.json: the full is at the end of the queues, which is right only for an engine that "
    "has applied everything in its queues"
)


@dataclass(frozen=True, slots=True)
class QueueRange(Range):
    """What one task reads of a partition. The backup stores every message from `own_from` on, and before that
    only the messages of transactions that were open at the preceding full.
    """

    own_from: int


#: What each task reads.
Tasks = tuple[tuple[QueueRange, ...], ...]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A planned backup of queues. `tasks[i]`: what task i reads; `keep`: whether it stores the messages.

    `start_ts` (ms): when its coverage starts; None: just before `end_ts`. `last_tid`: the engine's last tid
    at the start. `open_at`: the backup that lists the transactions open at the start. `tids`: (topic, epoch,
    partition, greatest known tid). `snapshot_tid`, `snapshot_open`: the last tid and the open transactions
    that snapshot.json states. `look_back`: what to read after `tasks` if a transaction seems to be open that
    has a message with a tid up to `last_tid`: its end may be in another partition, before the offsets read
    there. `watermarks`: (topic, epoch, partition, restore) of the restores that it continues. `lost`:
    messages that are missing; for a full, messages from before it.
    """

    kind: Literal["full", "cumulative", "differential"]
    parent: Parent | None
    restore_id: str | None
    start_ts: int | None
    end_ts: int
    positions: tuple[Position, ...]
    scopes: tuple[Scope, ...]
    lost: tuple[Gap, ...]
    tasks: Tasks
    keep: bool
    last_tid: int | None
    open_at: str | None
    tids: tuple[tuple[str, str, str, int], ...] = ()
    snapshot_tid: int | None = None
    snapshot_open: tuple[str, ...] | None = None
    look_back: Tasks = ()
    watermarks: tuple[tuple[str, str, str, str], ...] = ()
    new_regions: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def level(self) -> int:
        """0 for a full."""
        return 0 if self.kind == "full" else 1

    @property
    def offsets(self) -> int:
        """How many offsets to read. There are fewer messages where transactions left offsets without one."""
        return offsets_of(self.tasks)


def offsets_of(tasks: Iterable[Iterable[QueueRange]]) -> int:
    """How many offsets these tasks read."""
    return sum(r.end - r.start for task in tasks for r in task)


def from_lows(tasks: Tasks, lows: Mapping[PartitionKey, int]) -> Tasks:
    """The same tasks, without offsets below the low watermarks `lows` of their partitions."""
    return tuple(
        tuple(replace(r, start=min(max(r.start, lows.get(r.key, 0)), r.end)) for r in task) for task in tasks
    )


class _Part(NamedTuple):
    """What is read of a partition: offsets `[look, end)`. Those from `own` on are the backup's own."""

    region: RegionState
    look: int
    own: int
    end: int


@dataclass(frozen=True, slots=True)
class Queues:
    """The input of a backup's plan: the history that it continues (a full follows it), and its queues.

    `end_ts` (ms): when the ends of `regions` were read. Methods raise Refused for a compacted topic.
    """

    backup_id: str
    source: str
    continuation: Continuation
    topics: Sequence[TopicState]
    regions: Sequence[RegionState]
    end_ts: int
    parallelism: int = 2

    def child(self, mode: Literal["differential", "incremental"]) -> QueuePlan:
        """Plan a backup that depends on another. Its `lost` is what it needs and the source has deleted.

        Raises NeedsFull when there is no backup to continue.
        """
        continuation, parent = self.continuation, self.continuation.parent
        if parent is None:
            raise NeedsFull(f"There is no backup of {self.source} to continue.", hint=TAKE_FULL)
        self._refuse_compacted()
        starts = self._starts()
        # After an incremental, the chain holds all messages of the open transactions.
        looks_back = parent.level == 0 and continuation.open_at is not None
        parts = []
        for region in self.regions:
            start = starts.get(region.key)
            own = start.own_from if start else 0
            look = min(start.open_from, own) if start and looks_back else own
            parts.append(_Part(region, look, own, region.end))
        own_starts = {p.region.key: p.own for p in parts}
        return self._plan(
            parts,
            kind="cumulative" if mode == "differential" else "differential",
            parent=parent,
            restore_id=continuation.restore_id,
            # If the start lies in the future, only the end itself is covered.
            start_ts=continuation.start_ts if (continuation.start_ts or 0) < self.end_ts else None,
            positions=tuple(self._rows.position(p.region, p.own, max(p.own, p.end)) for p in parts),
            lost=tuple(self._lost((p.region, p.look) for p in parts)),
            keep=True,
            last_tid=continuation.last_tid,
            open_at=continuation.open_at,
            tids=_tids(continuation.starts),
            # A message may reach its partition, or be read there, after its transaction's end elsewhere.
            look_back=self._look_back((p.region, p.own) for p in parts),
            watermarks=tuple(
                (*w.key, w.restore_id) for w in continuation.watermarks if w.base <= own_starts.get(w.key, -1)
            ),
            new_regions=sum(region.key not in starts for region in self.regions),
            notes=continuation.notes,
        )

    def full(self, snapshot: SnapshotJson | None) -> QueuePlan:
        """Plan a full. It reads messages of transactions that may be open at it, and stores none.

        `snapshot`: the positions of the engine's snapshot; without it, the full is at the end of the queues.
        Raises NeedsFull when the source has deleted messages that follow the snapshot.
        """
        self._refuse_compacted()
        continuation, starts = self.continuation, self._starts()
        queues = {(q.topic, str(q.partition)): q for q in snapshot.queues} if snapshot else {}
        parts = []
        for region in self.regions:
            if snapshot:
                queue = queues[region.scope, region.region]
                own = queue.max_no_transaction_pos
                if own < region.low:
                    raise NeedsFull(
                        f"The snapshot is at offset {queue.position} of topic {region.scope}, partition "
                        f"{region.region}, and is read on from {own}; offsets below {region.low} were "
                        "deleted.",
                        hint="Nothing could continue it. Take a newer snapshot of the engine.",
                    )
                parts.append(_Part(region, own, own, queue.position))
            else:
                start = starts.get(region.key)
                own = max(start.own_from if start else 0, region.low)
                look = max(min(start.open_from, own), region.low) if start and continuation.open_at else own
                parts.append(_Part(region, look, min(own, region.end), region.end))
        region_starts = [(region, starts[region.key]) for region in self.regions if region.key in starts]
        # After a restore no message is missing.
        continues = continuation.parent is not None and continuation.restored is None
        looks_back = snapshot is not None and snapshot.open_transactions is None
        return self._plan(
            parts,
            kind="full",
            parent=None,
            restore_id=continuation.restore_id if region_starts else None,
            start_ts=None,
            positions=tuple(self._rows.position(p.region, p.end, p.end) for p in parts),
            lost=tuple(self._lost((r, start.own_from) for r, start in region_starts)) if continues else (),
            keep=False,
            last_tid=None if snapshot or not region_starts else continuation.last_tid,
            open_at=None if snapshot or not region_starts else continuation.open_at,
            tids=_tids(start for _, start in region_starts),
            snapshot_tid=snapshot.last_tid if snapshot else None,
            snapshot_open=snapshot.open_transactions if snapshot else None,
            # A transaction seen in one partition may end in another one, before the offsets read there.
            look_back=self._look_back((p.region, p.look) for p in parts) if looks_back else (),
            notes=() if snapshot else (_NO_SNAPSHOT,),
        )

    @property
    def _rows(self) -> BackupRows:
        return BackupRows(self.backup_id, self.source, self.end_ts)

    def _refuse_compacted(self) -> None:
        for topic in self.topics:
            if "compact" in topic.effective.get("cleanup.policy", ""):
                raise Refused(
                    f"Topic {topic.scope} is compacted: of messages with the same key it keeps the last "
                    "alone.",
                    hint="A queue must keep every message until it is backed up: set cleanup.policy=delete.",
                )

    def _starts(self) -> dict[PartitionKey, Start]:
        return {start.key: start for start in self.continuation.starts}

    def _plan(self, parts: Sequence[_Part], **values: Any) -> QueuePlan:
        return QueuePlan(
            end_ts=self.end_ts,
            scopes=tuple(map(self._rows.scope, self.topics)),
            tasks=self._tasks(parts),
            **values,
        )

    def _tasks(self, parts: Sequence[_Part]) -> Tasks:
        ranges = [(p.look, max(p.look, p.end)) for p in parts]
        return tuple(
            tuple(
                QueueRange(
                    *parts[piece.of].region.key, piece.start, piece.end, piece.rank, parts[piece.of].own
                )
                for piece in task
            )
            for task in splits.split(ranges, self.parallelism, one_task=_ONE_TASK)
        )

    def _look_back(self, ends: Iterable[tuple[RegionState, int]]) -> Tasks:
        """Tasks that read partitions from the start of their history up to a position each."""
        parts = []
        for region, end in ends:
            low = max(region.low, self.continuation.history_start(region.key, end))
            parts.append(_Part(region, min(low, end), end, end))
        return self._tasks(parts)

    def _lost(self, first_offsets: Iterable[tuple[RegionState, int]]) -> Iterator[Gap]:
        """The gaps in partitions that must be read from these offsets on, and those of lost partitions."""
        starts, rows = self._starts(), self._rows
        from_ts = min(self.continuation.start_ts or 0, rows.ts)
        for region, offset in first_offsets:
            start = starts.pop(region.key, None)
            if region.low > offset:
                yield rows.gap(region.key, offset, region.low, from_ts=from_ts)
            elif start and region.end < start.own_from:
                yield rows.gap(region.key, start.own_from, None, from_ts=from_ts)
        for partition, start in starts.items():
            yield rows.gap(partition, start.own_from, None, from_ts=from_ts)


def _tids(starts: Iterable[Start]) -> tuple[tuple[str, str, str, int], ...]:
    return tuple((*s.key, s.last_tid) for s in starts if s.last_tid is not None)


def needs_full(lost: Sequence[Gap]) -> NeedsFull:
    """The error to raise when the source no longer has messages that a backup must read."""
    return NeedsFull(
        f"Messages of the queues were lost before they were backed up: {_describe_some(lost)}.",
        hint="Nothing was written. Take a snapshot of the engine and a new full of it with --mode full; "
        "queues never take one by themselves.",
    )


def only_incremental(lost: Sequence[Gap]) -> NeedsFull:
    """The error to raise for a differential whose messages are gone from the source, but are in backups that
    were taken since its full."""
    return NeedsFull(
        "A differential would need messages since the last full that are gone from the queues; backups since "
        f"have them: {_describe_some(lost)}.",
        hint="Nothing was written, and nothing is lost. Use --mode incremental, or take a snapshot of the "
        "engine and a new full of it with --mode full.",
    )


def _describe_some(lost: Sequence[Gap]) -> str:
    return "; ".join(map(describe, lost[:5])) + (f"; and {len(lost) - 5} more" if len(lost) > 5 else "")


def describe(gap: Gap) -> str:
    """A text for the user that says which messages are missing."""
    partition = f"topic {gap.scope}, partition {gap.region}"
    if gap.to_position is not None:
        return f"{partition}, offsets [{gap.from_position}, {gap.to_position}) were deleted"
    return f"{partition} was reset: what came from offset {gap.from_position} on is not there any more"
