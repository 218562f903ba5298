"""Which offsets of an engine's queues the next backup reads. Pure.

A full has no messages: it has the positions of the engine's snapshot in each partition, and the transactions
that were open then. What continues it holds every message from there on, and in front of them those of the
transactions that were open.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

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
    from lakebackup.plan.queues.history import Continuation, Start, Watermark

# Below this many offsets no session of Spark's is worth its start.
HERE_OFFSETS = 2_000_000
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


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What a backup of queues will do. `tasks[i]` is what task i reads; `keep`: it stores the messages.

    `start_ts`: the instant its coverage begins at, ms; None: just before `end_ts`. `last_tid`: the engine's
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
    tasks: tuple[tuple[QueueRange, ...], ...]
    keep: bool
    last_tid: int | None
    open_at: str | None
    tids: tuple[tuple[str, str, str, int], ...] = ()
    snapshot_tid: int | None = None
    snapshot_open: tuple[str, ...] | None = None
    look_back: tuple[tuple[QueueRange, ...], ...] = ()
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

    @property
    def little(self) -> bool:
        """Whether Spark is not worth its start."""
        return are_little(self.tasks)


def offsets_of(tasks: Iterable[Iterable[QueueRange]]) -> int:
    """How many offsets tasks read."""
    return sum(r.end - r.start for task in tasks for r in task)


def are_little(tasks: Iterable[Iterable[QueueRange]]) -> bool:
    """Whether Spark is not worth its start for them."""
    return offsets_of(tasks) <= HERE_OFFSETS


def from_lows(
    tasks: Iterable[Iterable[QueueRange]], lows: Mapping[Place, int]
) -> tuple[tuple[QueueRange, ...], ...]:
    """The same tasks, each range from where its partition begins by now: what is gone cannot be found."""
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


def plan_child(
    *,
    backup_id: str,
    source: str,
    mode: Literal["differential", "incremental"],
    continuation: Continuation,
    topics: Sequence[TopicState],
    regions: Sequence[RegionState],
    end_ts: int,
    parallelism: int = 2,
) -> QueuePlan:
    """A backup that depends on another; `lost` is what the source has deleted and this one would need."""
    parent = continuation.parent
    if parent is None:
        raise NeedsFull(f"There is no backup of {source} to continue.", hint=TAKE_FULL)
    _require_whole(topics)
    rows, starts, restores = (
        BackupRows(backup_id, source, end_ts),
        _starts(continuation),
        _restores(continuation),
    )
    # After an incremental the chain holds all of what is open.
    looks_back = parent.level == 0 and continuation.open_at is not None
    parts = []
    for region in regions:
        start = starts.get(region.place)
        own = start.own_from if start else 0
        look = min(start.open_from, own) if start and looks_back else own
        parts.append(_Part(region, look, own, region.end))
    return QueuePlan(
        kind="cumulative" if mode == "differential" else "differential",
        parent=parent,
        restore_id=continuation.restored.restore_id if continuation.restored else None,
        start_ts=continuation.start_ts,
        end_ts=end_ts,
        positions=tuple(rows.position(p.region, p.own, max(p.own, p.end)) for p in parts),
        scopes=tuple(rows.scope(topic) for topic in topics),
        lost=tuple(_lost(rows, continuation, ((p.region, p.look) for p in parts))),
        tasks=_tasks(parts, parallelism),
        keep=True,
        last_tid=continuation.last_tid,
        open_at=continuation.open_at,
        tids=_tids(continuation.starts),
        # A message may come to its partition, or be seen there, after its transaction's end elsewhere.
        look_back=_tasks([_before(restores, p.region, p.own) for p in parts], parallelism),
        watermarks=tuple(
            (*w.place, w.restore_id)
            for p in parts
            for w in restores.get(p.region.place, ())
            if w.base <= p.own
        ),
        new_regions=sum(region.place not in starts for region in regions),
        notes=continuation.notes,
    )


def plan_full(
    *,
    backup_id: str,
    source: str,
    continuation: Continuation,
    snapshot: SnapshotJson | None,
    topics: Sequence[TopicState],
    regions: Sequence[RegionState],
    end_ts: int,
    parallelism: int = 2,
) -> QueuePlan:
    """A full. What is read are messages of transactions that may be open at it, and nothing is stored.

    `snapshot`: the positions of the engine's snapshot; without it, the full is where the queues end.
    `continuation`: what it comes after. Raises NeedsFull for a snapshot behind which messages are gone.
    """
    _require_whole(topics)
    rows, starts, restores = (
        BackupRows(backup_id, source, end_ts),
        _starts(continuation),
        _restores(continuation),
    )
    queues = {(q.topic, str(q.partition)): q for q in snapshot.queues} if snapshot else {}
    parts = []
    for region in regions:
        if snapshot:
            queue = queues[region.scope, region.region]
            own = queue.max_no_transaction_pos
            if own < region.low:
                raise NeedsFull(
                    f"The snapshot is at offset {queue.position} of topic {region.scope}, partition "
                    f"{region.region}, and is read on from {own}; offsets below {region.low} were deleted.",
                    hint="Nothing could continue it. Take a newer snapshot of the engine.",
                )
            parts.append(_Part(region, own, own, queue.position))
        else:
            start = starts.get(region.place)
            own = max(start.own_from if start else 0, region.low)
            look = max(min(start.open_from, own), region.low) if start and continuation.open_at else own
            parts.append(_Part(region, look, min(own, region.end), region.end))
    known = [(region, starts[region.place]) for region in regions if region.place in starts]
    # Behind a restore nothing is missing.
    continues = continuation.parent is not None and continuation.restored is None
    return QueuePlan(
        kind="full",
        parent=None,
        restore_id=continuation.restored.restore_id if continuation.restored and known else None,
        start_ts=None,
        end_ts=end_ts,
        positions=tuple(rows.position(p.region, p.end, p.end) for p in parts),
        scopes=tuple(rows.scope(topic) for topic in topics),
        lost=tuple(_lost(rows, continuation, ((r, start.own_from) for r, start in known)))
        if continues
        else (),
        tasks=_tasks(parts, parallelism),
        keep=False,
        last_tid=None if snapshot or not known else continuation.last_tid,
        open_at=None if snapshot or not known else continuation.open_at,
        tids=_tids(start for _, start in known),
        snapshot_tid=snapshot.last_tid if snapshot else None,
        snapshot_open=snapshot.open_transactions if snapshot else None,
        # Of a transaction that is seen in one partition the end may be in another, before what is read.
        look_back=_tasks([_before(restores, p.region, p.look) for p in parts], parallelism)
        if snapshot and snapshot.open_transactions is None
        else (),
        notes=() if snapshot else (_WITHOUT,),
    )


def _starts(continuation: Continuation) -> dict[Place, Start]:
    return {start.place: start for start in continuation.starts}


def _restores(continuation: Continuation) -> dict[Place, list[Watermark]]:
    found: dict[Place, list[Watermark]] = {}
    for one in continuation.watermarks:
        found.setdefault(one.place, []).append(one)
    return found


def _before(restores: Mapping[Place, list[Watermark]], region: RegionState, position: int) -> _Part:
    """A partition up to a position, from where its history begins: what was before, a restore has left."""
    bases = (w.base for w in restores.get(region.place, ()) if w.base <= position)
    low = max(region.low, max(bases, default=0))
    return _Part(region, min(low, position), position, position)


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


def _require_whole(topics: Iterable[TopicState]) -> None:
    for topic in topics:
        if "compact" in topic.effective.get("cleanup.policy", ""):
            raise Refused(
                f"Topic {topic.scope} is compacted: of messages with the same key it keeps the last alone.",
                hint="A queue must keep every message until it is backed up: set cleanup.policy=delete.",
            )


def _lost(
    rows: BackupRows, continuation: Continuation, looks: Iterable[tuple[RegionState, int]]
) -> Iterator[Gap]:
    """What is gone of partitions that must be read from these offsets on, or went with its partition."""
    starts = _starts(continuation)
    from_ts = min(continuation.start_ts or 0, rows.ts)
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


def _tasks(parts: Sequence[_Part], parallelism: int) -> tuple[tuple[QueueRange, ...], ...]:
    ranges = [(p.look, max(p.look, p.end)) for p in parts]
    return tuple(
        tuple(
            QueueRange(*parts[piece.of].region.place, piece.start, piece.end, piece.rank, parts[piece.of].own)
            for piece in task
        )
        for task in splits.split(ranges, parallelism, one_task=HERE_OFFSETS)
    )
