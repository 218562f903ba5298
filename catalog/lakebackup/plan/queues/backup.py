"""Which offsets of an engine's queues the next backup reads. Pure.

A full has no messages: it has the positions of the engine's snapshot in each partition, and the transactions
that were open then. What continues it holds every message from there on, and in front of them those of the
transactions that were open.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lakebackup.errors import NeedsFull, Refused
from lakebackup.plan import splits
from lakebackup.plan.partitions import BackupRows, Place, Range
from lakebackup.plan.queues.history import TAKE_FULL
from lakebackup.plan.topics.backup import Parent  # noqa: TC001 - a plan is read back by the types of its fields
from lakebackup.rows.backups import Gap, Position, Scope  # noqa: TC001 - likewise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakebackup.formats.queues.snapshot_json import SnapshotJson
    from lakebackup.plan.partitions import RegionState, TopicState
    from lakebackup.plan.queues.history import Continuation, Start

# So many offsets are one task.
_ONE_TASK = 2_000_000
_WITHOUT = (
    "there is no snapshot.json: the full is at the end of the queues, which is right only for an engine that "
    "has applied everything in its queues"
)


@dataclass(frozen=True, slots=True)
class QueueRange(Range):
    """What one task reads of a partition: from `own_from` on every message is stored, before it only those of
    transactions open at the full before.
    """

    own_from: int


#: What each task reads.
Tasks = tuple[tuple[QueueRange, ...], ...]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What a backup of queues will do. `tasks[i]` is what task i reads; `keep`: it stores the messages.

    `start_ts`: the instant its coverage starts at, ms; None: just before `end_ts`. `last_tid`: the engine's
    state at the start. `open_at`: the backup whose open transactions are open then. `tids`: (topic, epoch,
    partition, greatest tid known). `snapshot_tid`, `snapshot_open`: the engine's state and open transactions
    by snapshot.json. `look_back`: what is read after `tasks` when a transaction seems to be open that has a
    message of a tid up to `last_tid`: its end may be in another partition, before what was read there.
    `watermarks`: (topic, epoch, partition, restore) that it continues. `lost`: messages that are missing, for
    a full before it.
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
        """How many offsets are to be read; messages are fewer where transactions left holes."""
        return offsets_of(self.tasks)


def offsets_of(tasks: Iterable[Iterable[QueueRange]]) -> int:
    """How many offsets tasks read."""
    return sum(r.end - r.start for task in tasks for r in task)


def from_lows(tasks: Tasks, lows: Mapping[Place, int]) -> Tasks:
    """The same tasks, each range without offsets that its partition no longer has."""
    return tuple(
        tuple(replace(r, start=min(max(r.start, lows.get(r.place, 0)), r.end)) for r in task)
        for task in tasks
    )


class _Part(NamedTuple):
    """What is read of a partition: `[look, end)`; the messages from `own` on are the backup's own."""

    region: RegionState
    look: int
    own: int
    end: int


@dataclass(frozen=True, slots=True)
class Queues:
    """What a backup is planned from: what it continues (a full: comes after), and its queues as they are.

    `end_ts` in ms: when the ends of `regions` were looked at. Methods raise Refused for a compacted topic.
    """

    backup_id: str
    source: str
    continuation: Continuation
    topics: Sequence[TopicState]
    regions: Sequence[RegionState]
    end_ts: int
    parallelism: int = 2

    def child(self, mode: Literal["differential", "incremental"]) -> QueuePlan:
        """A backup that depends on another; `lost` is what the source has deleted and this one would need."""
        on, parent = self.continuation, self.continuation.parent
        if parent is None:
            raise NeedsFull(f"There is no backup of {self.source} to continue.", hint=TAKE_FULL)
        self._require_whole()
        starts = self._starts()
        # After an incremental the chain holds all of what is open.
        looks_back = parent.level == 0 and on.open_at is not None
        parts = []
        for region in self.regions:
            start = starts.get(region.place)
            own = start.own_from if start else 0
            look = min(start.open_from, own) if start and looks_back else own
            parts.append(_Part(region, look, own, region.end))
        owns = {p.region.place: p.own for p in parts}
        return self._plan(
            parts,
            kind="cumulative" if mode == "differential" else "differential",
            parent=parent,
            restore_id=on.restore_id,
            # After a start in the future nothing is covered but the end itself.
            start_ts=on.start_ts if (on.start_ts or 0) < self.end_ts else None,
            positions=tuple(self._rows.position(p.region, p.own, max(p.own, p.end)) for p in parts),
            lost=tuple(self._lost((p.region, p.look) for p in parts)),
            keep=True,
            last_tid=on.last_tid,
            open_at=on.open_at,
            tids=_tids(on.starts),
            # A message may come to its partition, or be seen there, after its transaction's end elsewhere.
            look_back=self._look_back((p.region, p.own) for p in parts),
            watermarks=tuple(
                (*w.place, w.restore_id) for w in on.watermarks if w.base <= owns.get(w.place, -1)
            ),
            new_regions=sum(region.place not in starts for region in self.regions),
            notes=on.notes,
        )

    def full(self, snapshot: SnapshotJson | None) -> QueuePlan:
        """A full. What is read are messages of transactions that may be open at it, and nothing is stored.

        `snapshot`: the positions of the engine's snapshot; without it, the full is where the queues end.
        Raises NeedsFull for a snapshot behind which messages are gone.
        """
        self._require_whole()
        on, starts = self.continuation, self._starts()
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
                start = starts.get(region.place)
                own = max(start.own_from if start else 0, region.low)
                look = max(min(start.open_from, own), region.low) if start and on.open_at else own
                parts.append(_Part(region, look, min(own, region.end), region.end))
        known = [(region, starts[region.place]) for region in self.regions if region.place in starts]
        # Behind a restore nothing is missing.
        continues = on.parent is not None and on.restored is None
        looks_back = snapshot is not None and snapshot.open_transactions is None
        return self._plan(
            parts,
            kind="full",
            parent=None,
            restore_id=on.restore_id if known else None,
            start_ts=None,
            positions=tuple(self._rows.position(p.region, p.end, p.end) for p in parts),
            lost=tuple(self._lost((r, start.own_from) for r, start in known)) if continues else (),
            keep=False,
            last_tid=None if snapshot or not known else on.last_tid,
            open_at=None if snapshot or not known else on.open_at,
            tids=_tids(start for _, start in known),
            snapshot_tid=snapshot.last_tid if snapshot else None,
            snapshot_open=snapshot.open_transactions if snapshot else None,
            # Of a transaction that is seen in one partition the end may be in another, before what is read.
            look_back=self._look_back((p.region, p.look) for p in parts) if looks_back else (),
            notes=() if snapshot else (_WITHOUT,),
        )

    @property
    def _rows(self) -> BackupRows:
        return BackupRows(self.backup_id, self.source, self.end_ts)

    def _require_whole(self) -> None:
        for topic in self.topics:
            if "compact" in topic.effective.get("cleanup.policy", ""):
                raise Refused(
                    f"Topic {topic.scope} is compacted: of messages with the same key it keeps the last "
                    "alone.",
                    hint="A queue must keep every message until it is backed up: set cleanup.policy=delete.",
                )

    def _starts(self) -> dict[Place, Start]:
        return {start.place: start for start in self.continuation.starts}

    def _plan(self, parts: Sequence[_Part], **rest: Any) -> QueuePlan:
        return QueuePlan(
            end_ts=self.end_ts,
            scopes=tuple(map(self._rows.scope, self.topics)),
            tasks=self._tasks(parts),
            **rest,
        )

    def _tasks(self, parts: Sequence[_Part]) -> Tasks:
        ranges = [(p.look, max(p.look, p.end)) for p in parts]
        return tuple(
            tuple(
                QueueRange(*parts[cut.of].region.place, cut.start, cut.end, cut.rank, parts[cut.of].own)
                for cut in task
            )
            for task in splits.split(ranges, self.parallelism, one_task=_ONE_TASK)
        )

    def _look_back(self, ends: Iterable[tuple[RegionState, int]]) -> Tasks:
        """Partitions up to a position each, from the start of their history."""
        parts = []
        for region, end in ends:
            low = max(region.low, self.continuation.history_start(region.place, end))
            parts.append(_Part(region, min(low, end), end, end))
        return self._tasks(parts)

    def _lost(self, looks: Iterable[tuple[RegionState, int]]) -> Iterator[Gap]:
        """What is gone of partitions that must be read from these offsets on, or went with its partition."""
        starts, rows = self._starts(), self._rows
        from_ts = min(self.continuation.start_ts or 0, rows.ts)
        for region, look in looks:
            start = starts.pop(region.place, None)
            if region.low > look:
                yield rows.gap(region.place, look, region.low, from_ts=from_ts)
            elif start and region.end < start.own_from:
                yield rows.gap(region.place, start.own_from, None, from_ts=from_ts)
        for place, start in starts.items():
            yield rows.gap(place, start.own_from, None, from_ts=from_ts)


def _tids(starts: Iterable[Start]) -> tuple[tuple[str, str, str, int], ...]:
    return tuple((*s.place, s.last_tid) for s in starts if s.last_tid is not None)


def needs_full(lost: Sequence[Gap]) -> NeedsFull:
    """What to raise when messages that a backup would have to read are not there any more."""
    return NeedsFull(
        f"Messages of the queues were lost before they were backed up: {_some(lost)}.",
        hint="Nothing was written. Take a snapshot of the engine and a new full of it with --mode full; "
        "queues never take one by themselves.",
    )


def only_incremental(lost: Sequence[Gap]) -> NeedsFull:
    """What to raise for a differential when what it would need is in backups since its full, and gone."""
    return NeedsFull(
        "A differential would need messages since the last full that are gone from the queues; backups since "
        f"have them: {_some(lost)}.",
        hint="Nothing was written, and nothing is lost. Use --mode incremental, or take a snapshot of the "
        "engine and a new full of it with --mode full.",
    )


def _some(lost: Sequence[Gap]) -> str:
    return "; ".join(map(describe, lost[:5])) + (f"; and {len(lost) - 5} more" if len(lost) > 5 else "")


def describe(gap: Gap) -> str:
    """What is missing, for a person."""
    place = f"topic {gap.scope}, partition {gap.region}"
    if gap.to_position is not None:
        return f"{place}, offsets [{gap.from_position}, {gap.to_position}) were deleted"
    return f"{place} was reset: what came from offset {gap.from_position} on is not there any more"
