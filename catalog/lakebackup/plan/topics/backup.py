"""Which offsets of which partitions the next backup of a Kafka cluster reads, and how the work is split.

Positions are next-to-read: a range is `[start, end)`. A partition that the chain has not seen starts at
its low watermark. A low watermark that passed the last position backed up is a purge: a gap, and the topic is
read from its start again unless told otherwise. A topic with a new id was deleted and made again: its history
starts over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from lakebackup.errors import Refused
from lakebackup.plan.topics.forks import Fork  # noqa: TC001 - a plan is read back by the types of its fields
from lakebackup.plan.topics.generations import GROWTH, Generation, Held, choose
from lakebackup.rows.backups import Gap, Position, Scope
from lakebackup.rows.topics import Group  # noqa: TC001 - a plan is read back by the types of its fields
from lakebackup.rules.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


OnGap = Literal["restart", "full", "continue", "fail"]
Increment = Literal["differential", "cumulative", "log"]

# A task below this many offsets costs more to start than to run.
LEAST_OFFSETS_PER_TASK = 250_000
# A task above this loses too much when it fails.
MOST_OFFSETS_PER_TASK = 20_000_000


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the cluster describes it: `epoch` is the topic id as 32 hex digits.

    `settings`: those of its own; `inherited`: what it has from its brokers, as in TopicSettings.
    """

    scope: str
    epoch: str
    regions: int
    replication: int
    settings: Mapping[str, str]
    inherited: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def saved(self) -> TopicSettings:
        """All settings, as a backup keeps them."""
        return TopicSettings(self.settings, self.inherited)

    @property
    def effective(self) -> Mapping[str, str]:
        """Settings in force, as far as they are known."""
        return self.saved.in_force


@dataclass(frozen=True, slots=True)
class RegionState:
    """A partition as the cluster describes it: low watermark, end to read to, high watermark."""

    scope: str
    epoch: str
    region: str
    low: int
    end: int
    high: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Covered:
    """How far a partition was backed up: next offset to read, and the instant that was true for.

    `number` is the backup's; `in_chain`: it is of the parent's chain, which a differential continues.
    """

    scope: str
    epoch: str
    region: str
    end_position: int
    end_ts: int
    number: int
    in_chain: bool


@dataclass(frozen=True, slots=True)
class Parent:
    """The backup a differential stands on."""

    backup_id: str
    base: str
    number: int
    level: int
    chain_position: int
    place: int
    link: int
    branch: int
    end_ts: int


@dataclass(frozen=True, slots=True)
class Split:
    """Offsets `[start, end)` of one partition, read by one task; `rank` counts its splits from 0."""

    scope: str
    epoch: str
    region: str
    start: int
    end: int
    rank: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """What a backup will do. `tasks[i]` is what Spark task i reads.

    `new_regions` counts the partitions that the chain has not seen before. `left_out` says, one sentence
    each, what was asked for and cannot be read; `notes` and `warnings`, how the parent was chosen.
    """

    kind: Literal["full", "differential", "cumulative", "log"]
    parent: Parent | None
    end_ts: int
    positions: tuple[Position, ...]
    scopes: tuple[Scope, ...]
    gaps: tuple[Gap, ...]
    tasks: tuple[tuple[Split, ...], ...] = field(default=())
    new_regions: int = 0
    generations: dict[str, Generation] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    left_out: tuple[str, ...] = ()
    level: int = 0
    branch: int = 0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fork: Fork | None = None

    @property
    def anew(self) -> list[tuple[str, Generation]]:
        """The topics that an incremental backup reads from their start again."""
        return [
            (scope, g)
            for scope, g in sorted(self.generations.items())
            if g.anew in ("asked", "growth", "tombstones", "purged")
        ]

    def missed_tombstones(self, now: int) -> list[str]:
        """Topics of which a tombstone may have gone unread, when reading ended at the instant `now` (ms)."""
        return sorted(
            scope for scope, g in self.generations.items() if g.safe_until is not None and now >= g.safe_until
        )

    @property
    def idle(self) -> bool:
        """Whether it would say nothing that the backup before has not said."""
        return self.kind != "full" and not (self.offsets or self.gaps or self.new_regions or self.fork)

    @property
    def offsets(self) -> int:
        """How many offsets are to be read; records are fewer where transactions or compaction left holes."""
        return sum(p.end_position - p.start_position for p in self.positions)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A backup that was planned and got its id and number; `started_at` in microseconds."""

    backup_id: str
    number: int
    started_at: int
    plan: BackupPlan


def plan_backup(
    *,
    backup_id: str,
    source: str,
    topics: Sequence[TopicState],
    regions: Sequence[RegionState],
    end_ts: int,
    parent: Parent | None,
    covered: Iterable[Covered],
    full: bool = False,
    on_gap: OnGap = "restart",
    parallelism: int = 2,
    increment: Increment = "differential",
    level: int = 1,
    branch: int = 0,
    held: Iterable[Held] = (),
    new_generation: bool = False,
    growth: float = GROWTH,
) -> BackupPlan:
    """The next backup of `topics`; `increment`, `level` and `branch` are those of one that is no full.

    What was deleted before its backup is a gap. With on_gap="restart" its topic is read from its start again,
    with "full" every topic is, with "continue" none, and restores over the gap are refused.
    Refused: a gap with on_gap="fail". A history that was cut back is found before (see `forks`).

    A gap lies behind the last backup of a partition in any chain; a differential starts where its own ends.
    A compacted topic may begin a new generation (see `generations`; `held` is what the catalog has of them):
    it is then read from its low watermark, and nothing that was purged before is missing in it.
    """
    asked_full = full or parent is None
    # A merge has a later number than backups that hold more.
    ordered = sorted(covered, key=lambda c: (c.end_ts, c.number)) if parent else []
    known = {(c.scope, c.epoch, c.region): c for c in ordered}
    chain = {(c.scope, c.epoch, c.region): c for c in ordered if c.in_chain}
    gaps = _purged(backup_id, source, regions, known, end_ts) + _recreated(
        backup_id, source, topics, known, end_ts
    )
    purged = [gap for gap in gaps if gap.reason == "purged"]
    if purged and on_gap == "fail":
        raise Refused(
            "Records were deleted before they were backed up: " + "; ".join(_describe(gap) for gap in purged),
            hint="Run with --on-gap restart to read these topics from their start again, or with --on-gap "
            "continue to go on over the gap.",
        )
    held = list(held)

    def generations(
        full: bool, restarted: Collection[tuple[str, str]] = ()
    ) -> dict[tuple[str, str], Generation]:
        return choose(
            topics, held, full=full, asked=new_generation, growth=growth, end_ts=end_ts, purged=restarted
        )

    chosen = generations(full=asked_full)
    going_on = [gap for gap in purged if not chosen[gap.scope, gap.epoch].anew]
    full = asked_full or (bool(going_on) and on_gap == "full")
    if full:
        chosen = generations(full=True)
    else:
        if on_gap == "restart":
            # A partition that the chain does not hold begins at its low watermark as it is.
            over = [gap for gap in going_on if (gap.scope, gap.epoch, gap.region) in chain]
            chosen = generations(full=False, restarted={(gap.scope, gap.epoch) for gap in over})
        chain = {place: c for place, c in chain.items() if not _anew(chosen, place)}
        gaps = [
            replace(gap, bridged=gap.reason == "purged" and (gap.scope, gap.epoch, gap.region) in chain)
            for gap in gaps
        ]
    positions = tuple(
        Position(
            backup_id=backup_id,
            source=source,
            scope=r.scope,
            epoch=r.epoch,
            region=r.region,
            start_position=(start := r.low if full else _start(r, chain)),
            end_position=max(start, r.end),
            low_position=r.low,
            high_position=r.high,
            leader_epoch=r.leader_epoch,
            ts=end_ts,
        )
        for r in regions
    )
    scopes = tuple(
        Scope(
            backup_id=backup_id,
            source=source,
            scope=t.scope,
            epoch=t.epoch,
            regions=t.regions,
            settings=t.saved.dump(),
            replication=t.replication,
            generation=chosen[t.scope, t.epoch].number,
        )
        for t in topics
    )
    return BackupPlan(
        kind="full" if full else increment,
        level=0 if full else level,
        branch=0 if full else branch,
        parent=None if full else parent,
        end_ts=end_ts,
        positions=positions,
        scopes=scopes,
        gaps=tuple(gaps),
        tasks=_tasks(positions, chosen, parallelism),
        new_regions=sum((r.scope, r.epoch, r.region) not in chain for r in regions),
        generations={scope: generation for (scope, _), generation in chosen.items()},
    )


def _anew(chosen: Mapping[tuple[str, str], Generation], place: tuple[str, str, str]) -> bool:
    generation = chosen.get(place[:2])
    return generation is not None and generation.anew is not None


def _start(region: RegionState, known: Mapping[tuple[str, str, str], Covered]) -> int:
    before = known.get((region.scope, region.epoch, region.region))
    return region.low if before is None else max(region.low, before.end_position)


def _purged(
    backup_id: str,
    source: str,
    regions: Sequence[RegionState],
    known: Mapping[tuple[str, str, str], Covered],
    end_ts: int,
) -> list[Gap]:
    return [
        Gap(
            backup_id=backup_id,
            source=source,
            scope=r.scope,
            epoch=r.epoch,
            region=r.region,
            from_position=before.end_position,
            to_position=r.low,
            reason="purged",
            from_ts=before.end_ts,
            to_ts=end_ts,
            bridged=False,
        )
        for r in regions
        if (before := known.get((r.scope, r.epoch, r.region))) and before.end_position < r.low
    ]


def _recreated(
    backup_id: str,
    source: str,
    topics: Sequence[TopicState],
    known: Mapping[tuple[str, str, str], Covered],
    end_ts: int,
) -> list[Gap]:
    epochs = {t.scope: t.epoch for t in topics}
    last = {c.scope: c.epoch for c in sorted(known.values(), key=lambda c: c.number)}
    return [
        Gap(
            backup_id=backup_id,
            source=source,
            scope=c.scope,
            epoch=c.epoch,
            region=c.region,
            from_position=c.end_position,
            to_position=None,
            reason="recreated",
            from_ts=c.end_ts,
            to_ts=end_ts,
            bridged=False,
        )
        for c in known.values()
        # Noticed once: for the backup after it, the new id is the last.
        if c.scope in epochs and last[c.scope] == c.epoch != epochs[c.scope]
    ]


def _tasks(
    positions: Iterable[Position], generations: Mapping[tuple[str, str], Generation], parallelism: int
) -> tuple[tuple[Split, ...], ...]:
    wanted = [p for p in positions if p.end_position > p.start_position]
    total = sum(p.end_position - p.start_position for p in wanted)
    # Twice as many tasks as cores, so that a slow one does not leave the others idle for long.
    size = min(max(-(-total // (2 * parallelism)), LEAST_OFFSETS_PER_TASK), MOST_OFFSETS_PER_TASK)
    tasks: list[tuple[Split, ...]] = []
    small: list[Split] = []
    room = size
    for p in wanted:
        for split in _splits(p, generations[p.scope, p.epoch].number, size):
            length = split.end - split.start
            if length > room and small:
                tasks.append(tuple(small))
                small, room = [], size
            small.append(split)
            room -= length
    if small:
        tasks.append(tuple(small))
    return tuple(tasks)


def _splits(p: Position, generation: int, size: int) -> Iterable[Split]:
    length = p.end_position - p.start_position
    # A rest of less than half a task is not worth a file of its own.
    count = max(1, (length + size // 2) // size)
    for rank in range(count):
        start = p.start_position + length * rank // count
        end = p.start_position + length * (rank + 1) // count
        yield Split(p.scope, p.epoch, p.region, start, end, rank, generation)


def _describe(gap: Gap) -> str:
    return f"topic {gap.scope}, partition {gap.region}, offsets [{gap.from_position}, {gap.to_position})"
