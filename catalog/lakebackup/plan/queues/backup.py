"""Which offsets of an engine's queues the next backup reads, and on which backup it stands. Pure.

A full has no messages: it says up to where in each partition the engine's snapshot has them, and which
transactions were open then. What stands on it holds every message from there on, and in front of them those
of the transactions that were open.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from lakebackup.errors import NeedsFull, Refused
from lakebackup.plan.queues.history import TAKE_FULL
from lakebackup.plan.topics.backup import LEAST_OFFSETS_PER_TASK, MOST_OFFSETS_PER_TASK, Parent
from lakebackup.rows.backups import Gap, Position, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakebackup.formats.queues.snapshot_json import SnapshotJson
    from lakebackup.plan.queues.history import Standing, Start, Watermark
    from lakebackup.plan.topics.backup import RegionState, TopicState

# Below this many offsets no session of Spark's is worth its start.
HERE_OFFSETS = 2_000_000
Place = tuple[str, str, str]
_WITHOUT = (
    "there is no snapshot.json: the full stands where the queues end, which is right only for an engine that "
    "has applied everything in its queues"
)


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets `[start, end)` of one partition, read by one task; `rank` counts its ranges from 0.

    From `own_from` on every message is stored; before it only those of transactions that the full before has
    open, the messages in front.
    """

    scope: str
    epoch: str
    region: str
    start: int
    end: int
    own_from: int
    rank: int


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """What a backup of queues will do. `tasks[i]` is what task i reads; `keep`: it stores the messages.

    `start_ts`: the instant its coverage begins at, ms; None: just before `end_ts`. `last_tid`: the engine's
    state at the start. `open_at`: the backup whose open transactions are open then. `tids`: (topic, epoch,
    partition) -> greatest tid known. `snapshot_tid` and `snapshot_open` are what snapshot.json said of the
    engine's state and its open transactions. `look_back`: what is read after `tasks` when a transaction seems
    to be open that has a message of a tid up to `last_tid`, if that is known: its end may stand in another
    partition, before what was read there. `watermarks`: (topic, epoch, partition, restore) of restores which
    it goes on behind. `lost`: what hinders it, for a full what came before.
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
        """Whether tasks of Spark's are not worth while."""
        return are_little(self.tasks)


def offsets_of(tasks: Iterable[Iterable[QueueRange]]) -> int:
    """How many offsets tasks read."""
    return sum(r.end - r.start for task in tasks for r in task)


def are_little(tasks: Iterable[Iterable[QueueRange]]) -> bool:
    """Whether tasks of Spark's are not worth while for them."""
    return offsets_of(tasks) <= HERE_OFFSETS


def from_lows(
    tasks: Iterable[Iterable[QueueRange]], lows: Mapping[Place, int]
) -> tuple[tuple[QueueRange, ...], ...]:
    """The same tasks, each range from where its partition begins by now: what is gone cannot be found."""
    return tuple(
        tuple(
            replace(r, start=min(max(r.start, lows.get((r.scope, r.epoch, r.region), 0)), r.end))
            for r in task
        )
        for task in tasks
    )


def plan_child(
    *,
    backup_id: str,
    source: str,
    mode: Literal["differential", "incremental"],
    standing: Standing,
    topics: Sequence[TopicState],
    regions: Sequence[RegionState],
    end_ts: int,
    parallelism: int = 2,
) -> QueuePlan:
    """A backup that stands on another; `lost` is what the source has let go of and this one would need."""
    parent = standing.parent
    if parent is None:
        raise NeedsFull(f"There is no backup of {source} to stand on.", hint=TAKE_FULL)
    _require_whole(topics)
    on_full = parent.level == 0
    starts = {(s.scope, s.epoch, s.region): s for s in standing.starts}
    looks: list[tuple[RegionState, int, int]] = []
    for region in regions:
        start = starts.get(_place(region))
        own = start.own_from if start else 0
        # Behind an incremental what is open goes on by itself: all of it is in the chain.
        look = min(start.open_from, own) if start and on_full and standing.open_at else own
        looks.append((region, look, own))
    positions = [
        _position(backup_id, source, region, end_ts, own, max(own, region.end)) for region, _, own in looks
    ]
    ranges = [(region, look, own) for region, look, own in looks if region.end > look]
    # A message may come to its partition, or be seen there, after its transaction's end was seen elsewhere.
    behind = _watermarks(standing)
    back = [(r, low, own, own) for r, _, own in looks if (low := max(r.low, _begins(behind, r, own))) < own]
    return QueuePlan(
        kind="cumulative" if mode == "differential" else "differential",
        parent=parent,
        restore_id=standing.restored.restore_id if standing.restored else None,
        start_ts=standing.start_ts,
        end_ts=end_ts,
        positions=tuple(positions),
        scopes=_scopes(backup_id, source, topics),
        lost=tuple(_lost(backup_id, source, standing, looks, starts, end_ts)),
        tasks=_tasks([(r, look, own, r.end) for r, look, own in ranges], parallelism),
        keep=True,
        last_tid=standing.last_tid,
        open_at=standing.open_at,
        tids=_tids(standing.starts),
        look_back=_tasks(back, parallelism),
        watermarks=tuple(
            (*_place(r), w.restore_id)
            for r, _, own in looks
            for w in behind.get(_place(r), ())
            if w.base <= own
        ),
        new_regions=sum(_place(r) not in starts for r in regions),
        notes=standing.notes,
    )


def plan_full(
    *,
    backup_id: str,
    source: str,
    standing: Standing,
    told: SnapshotJson | None,
    topics: Sequence[TopicState],
    regions: Sequence[RegionState],
    end_ts: int,
    parallelism: int = 2,
) -> QueuePlan:
    """A full. What is read are messages of transactions that may be open at it, and nothing is stored.

    `told`: where the engine's snapshot stands; without it, it is where the queues end. `standing`: what it
    comes after. Raises NeedsFull for a snapshot behind which messages are gone already.
    """
    _require_whole(topics)
    gone = _gone_since(backup_id, source, standing, regions, end_ts)
    parts: list[tuple[RegionState, int, int, int]] = []  # look from, own from, the snapshot's position
    if told:
        at = {(q.topic, str(q.partition)): q for q in told.queues}
        for region in regions:
            queue = at[region.scope, region.region]
            if queue.max_no_transaction_pos < region.low:
                raise NeedsFull(
                    f"The snapshot stands at offset {queue.position} of topic {region.scope}, partition "
                    f"{region.region}, and is read on from {queue.max_no_transaction_pos}; offsets below "
                    f"{region.low} were deleted.",
                    hint="Nothing could go on from it. Take a newer snapshot of the engine.",
                )
            parts.append((region, queue.max_no_transaction_pos, queue.max_no_transaction_pos, queue.position))
        notes: tuple[str, ...] = ()
    else:
        starts = {(s.scope, s.epoch, s.region): s for s in standing.starts}
        for region in regions:
            start = starts.get(_place(region))
            own = max(start.own_from if start else 0, region.low)
            look = max(min(start.open_from, own), region.low) if start and standing.open_at else own
            parts.append((region, look, min(own, region.end), region.end))
        notes = (_WITHOUT,)
    # Of a transaction that is seen in one partition the end may stand in another, before what is read there.
    behind = _watermarks(standing)
    back = [
        (r, low, look, look)
        for r, look, _, _ in parts
        if (low := max(r.low, _begins(behind, r, look))) < look
    ]
    known = {_place(region) for region in regions} & {(s.scope, s.epoch, s.region) for s in standing.starts}
    return QueuePlan(
        kind="full",
        parent=None,
        restore_id=standing.restored.restore_id if standing.restored and known else None,
        start_ts=None,
        end_ts=end_ts,
        positions=tuple(_position(backup_id, source, r, end_ts, end, end) for r, _, _, end in parts),
        scopes=_scopes(backup_id, source, topics),
        lost=tuple(gone),
        tasks=_tasks([(r, look, own, end) for r, look, own, end in parts if end > look], parallelism),
        keep=False,
        last_tid=None if told or not known else standing.last_tid,
        open_at=None if told or not known else standing.open_at,
        tids=_tids(s for s in standing.starts if (s.scope, s.epoch, s.region) in known),
        snapshot_tid=told.last_tid if told else None,
        snapshot_open=told.open_transactions if told else None,
        look_back=_tasks(back, parallelism) if told and told.open_transactions is None else (),
        notes=notes,
    )


def _watermarks(standing: Standing) -> dict[Place, list[Watermark]]:
    found: dict[Place, list[Watermark]] = {}
    for one in standing.watermarks:
        found.setdefault((one.scope, one.epoch, one.region), []).append(one)
    return found


def _begins(behind: Mapping[Place, list[Watermark]], region: RegionState, position: int) -> int:
    """Where the history begins that a position of a partition is of: what was before, a restore has left."""
    return max((w.base for w in behind.get(_place(region), ()) if w.base <= position), default=0)


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
        "A differential would need messages since the last full that the queues hold no more; backups since "
        f"have them: {_some(lost)}.",
        hint="Nothing was written, and nothing is lost. Go on with --mode incremental, or take a snapshot of "
        "the engine and a new full of it with --mode full.",
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
    backup_id: str,
    source: str,
    standing: Standing,
    looks: Iterable[tuple[RegionState, int, int]],
    starts: Mapping[Place, Start],
    end_ts: int,
) -> Iterable[Gap]:
    seen = set()
    for region, look, own in looks:
        place = _place(region)
        seen.add(place)
        if region.low > look:
            yield _gap(backup_id, source, standing, place, look, region.low, end_ts)
        elif place in starts and region.end < own:
            yield _gap(backup_id, source, standing, place, own, None, end_ts)
    for place, start in starts.items():
        if place not in seen:
            yield _gap(backup_id, source, standing, place, start.own_from, None, end_ts)


def _gone_since(
    backup_id: str, source: str, standing: Standing, regions: Sequence[RegionState], end_ts: int
) -> list[Gap]:
    """What no backup holds of the time before a full; behind a restore nothing is missing."""
    if standing.restored or standing.parent is None:
        return []
    now = {_place(region): region for region in regions}
    found = []
    for start in standing.starts:
        place = (start.scope, start.epoch, start.region)
        region = now.get(place)
        if region is None or region.end < start.own_from:
            found.append(_gap(backup_id, source, standing, place, start.own_from, None, end_ts))
        elif region.low > start.own_from:
            found.append(_gap(backup_id, source, standing, place, start.own_from, region.low, end_ts))
    return found


def _gap(
    backup_id: str, source: str, standing: Standing, place: Place, start: int, end: int | None, end_ts: int
) -> Gap:
    scope, epoch, region = place
    return Gap(
        backup_id=backup_id,
        source=source,
        scope=scope,
        epoch=epoch,
        region=region,
        from_position=start,
        to_position=end,
        reason="recreated" if end is None else "purged",
        from_ts=min(standing.start_ts or 0, end_ts),
        to_ts=end_ts,
        bridged=False,
    )


def _position(backup_id: str, source: str, region: RegionState, ts: int, start: int, end: int) -> Position:
    return Position(
        backup_id=backup_id,
        source=source,
        scope=region.scope,
        epoch=region.epoch,
        region=region.region,
        start_position=start,
        end_position=end,
        low_position=region.low,
        high_position=region.high,
        leader_epoch=region.leader_epoch,
        ts=ts,
    )


def _scopes(backup_id: str, source: str, topics: Sequence[TopicState]) -> tuple[Scope, ...]:
    return tuple(
        Scope(
            backup_id=backup_id,
            source=source,
            scope=topic.scope,
            epoch=topic.epoch,
            regions=topic.regions,
            settings=topic.saved.dump(),
            replication=topic.replication,
        )
        for topic in topics
    )


def _tids(starts: Iterable[Start]) -> tuple[tuple[str, str, str, int], ...]:
    return tuple((s.scope, s.epoch, s.region, s.last_tid) for s in starts if s.last_tid is not None)


def _tasks(
    parts: Sequence[tuple[RegionState, int, int, int]], parallelism: int
) -> tuple[tuple[QueueRange, ...], ...]:
    """Ranges `[look, end)` cut so that no task has far more to do than others; little is one task."""
    total = sum(end - look for _, look, _, end in parts)
    if not total:
        return ()
    size = total
    if total > HERE_OFFSETS:
        size = min(max(-(-total // (2 * parallelism)), LEAST_OFFSETS_PER_TASK), MOST_OFFSETS_PER_TASK)
    tasks: list[list[QueueRange]] = [[]]
    room = size
    for region, look, own, end in parts:
        count = max(1, (end - look + size // 2) // size)
        cuts = [look + (end - look) * rank // count for rank in range(count + 1)]
        for rank, (start, stop) in enumerate(pairwise(cuts)):
            if tasks[-1] and stop - start > room:
                tasks.append([])
                room = size
            tasks[-1].append(QueueRange(*_place(region), start, stop, own, rank))
            room -= stop - start
    return tuple(map(tuple, tasks))


def _place(region: RegionState) -> Place:
    return region.scope, region.epoch, region.region
