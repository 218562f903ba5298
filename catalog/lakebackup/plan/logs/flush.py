"""Which offsets of a change feed the next flush of a log task reads. Pure: states in, a plan out.

A flush begins where the one before ended, in each partition, and continues the newest log backup of its task.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a flush is read back by the types of its fields
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.plan import splits
from lakebackup.rows.backups import Gap, Position, Scope  # noqa: TC001 - likewise
from lakebackup.rules.times import format_ts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebackup.plan.partitions import BackupRows, Place, RegionState

#: What an event takes, before any flush has shown it.
FIRST_BYTES = 1024
# A task below this many offsets costs more to start than to run.
_LEAST_OFFSETS = 20_000


@dataclass(frozen=True, slots=True)
class Newest:
    """The log backup that the next one continues. `start_ts` None: no checkpoint was known yet."""

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
    """A planned flush: what it reads (`positions`), and what its feed must know besides (`context`).

    `tasks[i]`: which positions Spark task i reads. `since`: changes up to this ts are not captured. `floor`:
    where the log begins when this is its first flush, None: at the first checkpoint. `left_out`: path of an
    object with the ids of tables that were never in the filter.
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
    """In how many seconds a flush is due, so that it is done `every_s` after the last one began if it takes
    as long as that one.

    `last`: its beginning and end, in us, by a clock that may have been ahead of the one of `now` (s).
    """
    if last is None:
        return 0.0
    started, finished = (at / 1e6 for at in last)
    due = started + every_s - min(max(finished - started, 0.0), every_s / 2)
    return min(max(due - now, 0.0), every_s)


def waiting(regions: Sequence[RegionState], known: Mapping[Place, int]) -> int:
    """How many offsets are still to be read."""
    return sum(region.end - begins(region, known) for region in regions)


def begins(region: RegionState, known: Mapping[Place, int]) -> int:
    """The first offset to read of a partition: where it was read to, or its first one that is still there."""
    return min(max(known.get(region.place, 0), region.low), region.end)


def positions(
    rows: BackupRows, regions: Sequence[RegionState], known: Mapping[Place, int], most: int
) -> tuple[Position, ...]:
    """What a flush reads of each partition with something new: about `most` offsets in all, the same part of
    what waits in each, so that none falls behind."""
    part = min(1.0, most / max(1, waiting(regions, known)))
    found = []
    for region in regions:
        start = begins(region, known)
        end = min(region.end, start + ceil((region.end - start) * part))
        if end > start or region.place not in known:
            found.append(rows.position(region, start, end))
    return tuple(found)


def gaps(
    rows: BackupRows,
    regions: Sequence[RegionState],
    known: Mapping[Place, int],
    newest: Newest | None,
    *,
    allowed: bool,
) -> tuple[Gap, ...]:
    """Events that are gone unread: Kafka deleted them, the topic was recreated, or the partition has become
    shorter than it was read (its leader was elected uncleanly).

    Refused unless `allowed`. `to_ts` is set when the flush is published. A partition that appears after the
    task began must have its beginning: all of it is the task's.
    """
    last = {(scope, region): (epoch, end) for (scope, epoch, region), end in known.items()}
    times = (newest.end_ts, newest.end_ts) if newest else (0, rows.ts)
    found = []
    for at in regions:
        own = known.get(at.place)
        before = (at.epoch, own) if own is not None else last.get((at.scope, at.region))
        if before is None and newest is None:
            continue
        epoch, end = before or (at.epoch, 0)
        cut = epoch == at.epoch and end > at.end
        if epoch == at.epoch and at.low <= end and not cut:
            continue
        purged = epoch == at.epoch and not cut
        place = at.scope, epoch, at.region
        start, stop = at.end if cut else end, at.low if purged else None
        found.append(rows.gap(place, start, stop, from_ts=times[0], to_ts=times[1], bridged=True))
    if found and not allowed:
        first = found[0]
        raise Refused(
            f"Events of topic {first.scope}, partition {first.region}, from offset {first.from_position} on "
            + (
                "were deleted"
                if first.reason == "purged"
                else "were lost when the topic was recreated or truncated,"
            )
            + " before they were read"
            + (f"; so were those of {len(found) - 1} more partitions." if len(found) > 1 else "."),
            hint="Take a new full of the database and start a new task, or continue without those events: "
            "stop this one and start it with --allow-gaps.",
        )
    return tuple(found)


def tasks(positions: Sequence[Position], parallelism: int) -> tuple[tuple[int, ...], ...]:
    """Which partitions each task reads, whole, so that all have about the same to do."""
    sizes = [position.end_position - position.start_position for position in positions]
    return splits.share_out(sizes, parallelism, _LEAST_OFFSETS)


def first_floor(
    regions: Sequence[RegionState], since: int | None, lost: Sequence[str], *, allowed: bool
) -> int | None:
    """From which ts on the log of a new task is whole; None: from its first checkpoint.

    `since`: of --lastbackupts; `lost`: partitions whose oldest event is younger than it.
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
