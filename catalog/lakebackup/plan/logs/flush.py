"""Which offsets of a change feed the next flush of a log task reads. Pure: states in, a plan out.

A flush begins where the one before ended, in each partition. It stands on the newest log backup of its task;
the first one stands on nothing.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a flush is read back by the types of its fields
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.rows.backups import Gap, Position, Scope
from lakebackup.rules.times import format_ts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebackup.plan.topics.backup import RegionState, TopicState

#: What an event takes, before any flush has shown it.
FIRST_BYTES = 1024
# A task below this many offsets costs more to start than to run.
_LEAST_OFFSETS = 20_000


@dataclass(frozen=True, slots=True)
class Newest:
    """The log backup that the next one stands on. `start_ts` None: no checkpoint was known yet."""

    backup_id: str
    number: int
    base: str
    chain_position: int
    place: int
    start_ts: int | None
    end_ts: int

    @property
    def checkpoint(self) -> int | None:
        return None if self.start_ts is None else self.end_ts


@dataclass(frozen=True, slots=True)
class Flush:
    """A flush that was planned: what it reads (`positions`), and what its feed said of it (`context`).

    `tasks[i]`: which positions Spark task i reads. `since`: changes up to this ts are not captured, None: all
    are. `floor`: from where the log reaches when this is its first flush, None: from the first checkpoint.
    `left_out`: path of an object with the ids of tables that were never in the filter.
    """

    backup_id: str
    number: int
    started_at: int
    instant: int
    newest: Newest | None
    floor: int | None
    since: int | None
    positions: tuple[Position, ...]
    scopes: tuple[Scope, ...]
    gaps: tuple[Gap, ...]
    tasks: tuple[tuple[int, ...], ...]
    left_out: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    @property
    def resolved_ts(self) -> int | None:
        """The checkpoint before it, None: none is known."""
        return self.newest.checkpoint if self.newest else self.floor


def due_in(last: tuple[int, int] | None, every_s: float, now: float) -> float:
    """In how many seconds a flush is due for its time: so that it is done `every_s` after what the last one
    had read to, if it takes as long as that one.

    `last`: its beginning and end, in microseconds, by a clock that may have been ahead of the one that gives
    `now` (seconds since 1970 UTC).
    """
    if last is None:
        return 0.0
    started, finished = (at / 1e6 for at in last)
    due = started + every_s - min(max(finished - started, 0.0), every_s / 2)
    return min(max(due - now, 0.0), every_s)


def waiting(regions: Sequence[RegionState], known: Mapping[tuple[str, str, str], int]) -> int:
    """How many offsets nobody has read."""
    return sum(region.end - begins(region, known) for region in regions)


def begins(region: RegionState, known: Mapping[tuple[str, str, str], int]) -> int:
    """The first offset to read of a partition: where it was read to, or its first one that is still there."""
    return min(max(known.get((region.scope, region.epoch, region.region), 0), region.low), region.end)


def positions(
    backup_id: str,
    source: str,
    regions: Sequence[RegionState],
    known: Mapping[tuple[str, str, str], int],
    instant: int,
    most: int,
) -> tuple[Position, ...]:
    """What a flush reads of each partition that has something new: about `most` offsets in all, of each the
    same part of what waits, so that none falls behind the others."""
    part = min(1.0, most / max(1, waiting(regions, known)))
    rows = []
    for region in regions:
        start = begins(region, known)
        end = min(region.end, start + ceil((region.end - start) * part))
        if end > start or (region.scope, region.epoch, region.region) not in known:
            rows.append(
                Position(
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
                    ts=instant,
                )
            )
    return tuple(rows)


def scopes(backup_id: str, source: str, topics: Sequence[TopicState], settings: str) -> tuple[Scope, ...]:
    """The topics of a feed. `settings`: JSON text that each gets."""
    return tuple(
        Scope(
            backup_id=backup_id,
            source=source,
            scope=topic.scope,
            epoch=topic.epoch,
            regions=topic.regions,
            settings=settings,
            replication=topic.replication,
        )
        for topic in topics
    )


def gaps(
    backup_id: str,
    source: str,
    regions: Sequence[RegionState],
    known: Mapping[tuple[str, str, str], int],
    newest: Newest | None,
    instant: int,
    *,
    allowed: bool,
) -> tuple[Gap, ...]:
    """Events that are gone unread: Kafka deleted them, the topic was made again, or the partition has become
    shorter than it was read (its leader was elected uncleanly).

    Refused when there are some and nobody allowed it. `to_ts` is set when the flush is published. A partition
    that is met later than the task began must have its beginning: all of it is the task's.
    """
    last = {(scope, region): (epoch, end) for (scope, epoch, region), end in known.items()}
    found = []
    for at in regions:
        own = known.get((at.scope, at.epoch, at.region))
        before = (at.epoch, own) if own is not None else last.get((at.scope, at.region))
        if before is None and newest is None:
            continue
        epoch, end = before or (at.epoch, 0)
        cut = epoch == at.epoch and end > at.end
        if epoch == at.epoch and at.low <= end and not cut:
            continue
        purged = epoch == at.epoch and not cut
        found.append(
            Gap(
                backup_id=backup_id,
                source=source,
                scope=at.scope,
                epoch=epoch,
                region=at.region,
                from_position=at.end if cut else end,
                to_position=at.low if purged else None,
                reason="purged" if purged else "recreated",
                from_ts=newest.end_ts if newest else 0,
                to_ts=newest.end_ts if newest else instant,
                bridged=True,
            )
        )
    if found and not allowed:
        first = found[0]
        raise Refused(
            f"Events of topic {first.scope}, partition {first.region}, from offset {first.from_position} on "
            + ("were deleted" if first.reason == "purged" else "went with the topic, made again or cut off,")
            + " before they were read"
            + (f"; so it is with {len(found) - 1} more partitions." if len(found) > 1 else "."),
            hint="Take a new full of the database and begin a new task, or go on without those events: stop "
            "this one and start it with --allow-gaps.",
        )
    return tuple(found)


def tasks(rows: Sequence[Position], parallelism: int) -> tuple[tuple[int, ...], ...]:
    """Which partitions each task reads, whole, so that all have about the same to do."""
    sizes = {number: row.end_position - row.start_position for number, row in enumerate(rows)}
    sizes = {number: size for number, size in sizes.items() if size}
    count = min(parallelism, len(sizes), max(1, sum(sizes.values()) // _LEAST_OFFSETS))
    loads: list[list[int]] = [[] for _ in range(count)]
    for number in sorted(sizes, key=lambda n: (-sizes[n], n)):
        min(loads, key=lambda load: sum(sizes[n] for n in load)).append(number)
    return tuple(tuple(load) for load in loads)


def first_floor(
    regions: Sequence[RegionState], since: int | None, lost: Sequence[str], *, allowed: bool
) -> int | None:
    """From which ts on the log of a new task is whole; None: from its first checkpoint.

    `since`: what a person said (`--lastbackupts`); `lost`: partitions whose oldest event is younger than it.
    """
    if since is None:
        return 0 if all(region.low == 0 for region in regions) else None
    if lost and not allowed:
        raise Refused(
            f"The feed has deleted events that may have come after {since}: {', '.join(lost[:3])}"
            f"{' and others' if len(lost) > 3 else ''} begins later.",
            hint="Give --lastbackupts of a later backup, or --allow-gaps.",
        )
    return since


def physical_ms(ts: int, domain: str) -> int:
    """Milliseconds since 1970 UTC of a ts: of a `tso`, its upper bits, as TiDB's PD hands them out."""
    return ts >> 18 if domain == "tso" else ts


def ts_at(ms: int, domain: str) -> int:
    """The first ts of an instant, in milliseconds since 1970 UTC."""
    return ms << 18 if domain == "tso" else ms


def shown_ts(ts: int, domain: str) -> str:
    """A ts for a person: itself, and its instant."""
    return f"{ts} ({format_ts(physical_ms(ts, domain))})"
