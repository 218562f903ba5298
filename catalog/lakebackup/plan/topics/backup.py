"""Plan the next backup of Kafka topics: which offsets it reads of each partition, and in which tasks.

A position is the next offset to read; a range is `[start, end)`. A partition that is new to the chain starts
at its low watermark. If the low watermark is above the last position, records were purged: that is a gap, and
the topic is read from its start again, unless --on-gap is set. A topic with a new id was recreated: its
history starts over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from lakebackup.errors import Refused
from lakebackup.plan import splits
from lakebackup.plan.partitions import BackupRows, Partition, PartitionKey, Range, RegionState, TopicState
from lakebackup.plan.topics.forks import Fork
from lakebackup.plan.topics.generations import GROWTH, Generation, GenerationHistory, choose
from lakebackup.rows.backups import Gap, Position, Scope
from lakebackup.rows.topics import Group

#: A backup reads a partition up to its first open transaction. It warns if that has been open for this long
#: (ms). A younger transaction is in flight and only noted. The value is the default transaction.timeout.ms of
#: producers, after which a coordinator aborts a transaction.
LONG_OPEN_MS = 60_000

OnGap = Literal["restart", "full", "continue", "fail"]
Increment = Literal["differential", "cumulative", "log"]


@dataclass(frozen=True, slots=True)
class Covered(Partition):
    """How far one backup covers a partition: up to the offset `end_position`, as of `end_ts` (ms).

    `number` is the backup's number. `in_chain` tells whether the backup is in the parent's chain, which a
    differential continues. `open_since` is that of RegionState, and `complete_ts` that of the topic's row in
    the backup.
    """

    end_position: int
    end_ts: int
    number: int
    in_chain: bool
    open_since: int | None = None
    complete_ts: int | None = None

    @property
    def covers_to(self) -> int:
        """The last instant that the backup covers."""
        return self.end_ts if self.complete_ts is None else self.complete_ts


@dataclass(frozen=True, slots=True)
class Parent:
    """The backup that an incremental backup continues; its fields are columns of `backups`."""

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
class NewestFile:
    """The newest data file of a partition, and the first sequence number that no file of it has."""

    scope: str
    epoch: str
    region: str
    next_sequence: int
    raw_bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class Split(Range):
    """A range of a partition that one task reads, and the generation of its topic."""

    generation: int = 0


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """A backup to run. `tasks[i]`: the ranges that Spark task i reads.

    `new_regions`: how many partitions are new to the chain. `left_out`: a sentence for each requested topic
    that cannot be read. `notes`, `warnings`: sentences on how the parent was chosen. `bytes`: an estimate of
    the records' bytes; None for a full, or if it is not known. `newly_open`: how many partitions end before a
    transaction that has been open for long, and that the previous backup did not report.
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
    bytes: int | None = None
    newly_open: int = 0

    @property
    def long_open(self) -> list[Position]:
        """The partitions that end before a transaction that has been open for long."""
        return [p for p in self.positions if _open_for_long(p.open_since, self.end_ts)]

    @property
    def in_flight(self) -> list[Position]:
        """The partitions that end before a transaction that began a moment ago."""
        return [p for p in self.positions if p.open_since is not None and p not in self.long_open]

    @property
    def restarted(self) -> list[tuple[str, Generation]]:
        """The topics that an incremental backup reads from their start again."""
        return [
            (scope, g)
            for scope, g in sorted(self.generations.items())
            if g.anew in ("asked", "growth", "tombstones", "purged")
        ]

    @property
    def partitions_read(self) -> set[tuple[str, str]]:
        """The partitions that its tasks read, as (topic, partition)."""
        return {(split.scope, split.region) for task in self.tasks for split in task}

    def missed_tombstones(self, now_ms: int) -> list[str]:
        """Topics of which the broker may have deleted a tombstone before reading ended, at `now_ms` (ms)."""
        return sorted(
            scope
            for scope, g in self.generations.items()
            if g.safe_until is not None and now_ms >= g.safe_until
        )

    @property
    def idle(self) -> bool:
        """Whether the backup would add nothing to its parent."""
        return self.kind != "full" and not (
            self.offsets or self.gaps or self.new_regions or self.fork or self.newly_open
        )

    @property
    def offsets(self) -> int:
        """How many offsets to read. Transaction markers and compaction make the number of records smaller."""
        return sum(p.end_position - p.start_position for p in self.positions)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A planned backup with its id and number. `started_at` is in microseconds."""

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
    histories: Iterable[GenerationHistory] = (),
    new_generation: bool = False,
    growth: float = GROWTH,
) -> BackupPlan:
    """Plan the next backup of `topics`. It is a full if `full` is set or `parent` is None. Otherwise it has
    the kind `increment`, the `level` and the `branch`. The caller has checked that the topics were not
    truncated (see `forks`).

    Each partition is read from where the parent's chain ends. Records that were deleted before any backup
    read them are a gap: from where the last backup of the partition in any chain ends to the low watermark.
    `on_gap` tells what to do then: "restart" reads the topic from its start again, "full" reads every topic
    so, "continue" leaves the gap, across which restores are refused, and "fail" raises Refused.

    A compacted topic may start a new generation (see `generations`; `histories` has those in the catalog).
    Its partitions are then read from their low watermarks, and records that were purged earlier are no gap in
    it.
    """
    full_requested = full or parent is None
    # The last backup of a partition is the one that ends furthest. It is not the one with the greatest
    # number, since a merge has a greater number than backups that end later, nor the newest, since a clock
    # may have been wrong.
    ordered = sorted(covered, key=lambda c: (c.end_position, c.number)) if parent else []
    last_covered = {c.key: c for c in ordered}
    last_in_chain = {c.key: c for c in ordered if c.in_chain}
    purged = {
        r.key: (previous, r.low)
        for r in regions
        if (previous := last_covered.get(r.key)) and previous.end_position < r.low
    }
    if purged and on_gap == "fail":
        lost = [
            f"topic {c.scope}, partition {c.region}, offsets [{c.end_position}, {low})"
            for c, low in purged.values()
        ]
        raise Refused(
            f"Records were deleted before they were backed up: {'; '.join(lost)}",
            hint="Run with --on-gap restart to read these topics from their start again, or with --on-gap "
            "continue to leave the gap.",
        )
    choose_generations = partial(
        choose, topics, list(histories), requested=new_generation, growth=growth, end_ts=end_ts
    )
    generations = choose_generations(full=full_requested)
    # A topic that starts a new generation is read from its start anyway, so on_gap decides about the others
    # only.
    undecided = {partition for partition in purged if not generations[partition[:2]].anew}
    full = full_requested or (bool(undecided) and on_gap == "full")
    if full:
        generations, last_in_chain = choose_generations(full=True), {}
    elif on_gap == "restart":
        # A partition that is new to the chain starts at its low watermark anyway.
        generations = choose_generations(
            full=False, purged={partition[:2] for partition in undecided & last_in_chain.keys()}
        )
    restarted = {topic for topic, generation in generations.items() if generation.anew}
    last_in_chain = {partition: c for partition, c in last_in_chain.items() if partition[:2] not in restarted}
    rows = BackupRows(backup_id, source, end_ts)
    by_topic: dict[str, list[RegionState]] = {t.scope: [] for t in topics}
    for r in regions:
        by_topic[r.scope].append(r)
    starts = [
        max(r.low, last_in_chain[r.key].end_position) if r.key in last_in_chain else r.low for r in regions
    ]
    positions = tuple(
        rows.position(r, start, max(start, r.end)) for r, start in zip(regions, starts, strict=True)
    )
    gaps = [
        rows.gap(partition, c.end_position, low, from_ts=c.covers_to, bridged=partition in last_in_chain)
        for partition, (c, low) in purged.items()
    ]
    return BackupPlan(
        kind="full" if full else increment,
        level=0 if full else level,
        branch=0 if full else branch,
        parent=None if full else parent,
        end_ts=end_ts,
        positions=positions,
        scopes=tuple(
            rows.scope(t, generation=generations[t.scope, t.epoch].number, regions=by_topic[t.scope])
            for t in topics
        ),
        gaps=(*gaps, *_recreated(rows, topics, last_covered)),
        tasks=tuple(
            tuple(_split(positions[piece.of], piece, generations) for piece in task)
            for task in splits.split([(p.start_position, p.end_position) for p in positions], parallelism)
        ),
        new_regions=sum(r.key not in last_in_chain for r in regions),
        newly_open=sum(
            _open_for_long(r.open_since, end_ts) and not _reported(last_covered.get(r.key), r.end)
            for r in regions
        ),
        generations={scope: generation for (scope, _), generation in generations.items()},
    )


def _open_for_long(since: int | None, end_ts: int) -> bool:
    return since is not None and end_ts - since >= LONG_OPEN_MS


def _reported(covered: Covered | None, position: int) -> bool:
    """Whether the previous backup of a partition ended at the same position and warned of the open
    transaction."""
    return (
        covered is not None
        and covered.end_position == position
        and _open_for_long(covered.open_since, covered.end_ts)
    )


def increment_bytes(plan: BackupPlan, newest: Iterable[NewestFile]) -> tuple[int, list[Position]]:
    """Estimate the bytes of the records that a backup reads, from the newest file of each partition.

    Also returns the positions of topics that have new records but no file yet. The estimate leaves these out.
    """
    totals: dict[str, tuple[int, int]] = {}
    for file in newest:
        size, entries = totals.get(file.scope, (0, 0))
        totals[file.scope] = size + file.raw_bytes, entries + file.entries
    total, unknown = 0, []
    for p in plan.positions:
        if count := p.end_position - p.start_position:
            size, entries = totals.get(p.scope, (0, 0))
            if entries:
                total += count * size // entries
            else:
                unknown.append(p)
    return total, unknown


def _recreated(
    rows: BackupRows, topics: Sequence[TopicState], last_covered: Mapping[PartitionKey, Covered]
) -> Iterator[Gap]:
    """Yield a gap for each partition of a topic that was deleted and created again: no backup read its last
    records."""
    epochs = {t.scope: t.epoch for t in topics}
    last_epochs = {c.scope: c.epoch for c in sorted(last_covered.values(), key=lambda c: c.number)}
    for c in last_covered.values():
        # Only the first backup after the recreation adds the gap. Afterwards the last epoch is the new one.
        if c.scope in epochs and last_epochs[c.scope] == c.epoch != epochs[c.scope]:
            yield rows.gap(c.key, c.end_position, None, from_ts=c.covers_to)


def _split(p: Position, piece: splits.Piece, generations: Mapping[tuple[str, str], Generation]) -> Split:
    generation = generations[p.scope, p.epoch].number
    return Split(p.scope, p.epoch, p.region, piece.start, piece.end, piece.rank, generation)
