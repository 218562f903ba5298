"""Plans the next flush of a log task: which offsets of the change feed it reads. Pure.

A flush starts in each partition where the previous one ended, and continues the task's newest log backup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType
from typing import Any

from lakebackup.errors import Refused
from lakebackup.plan import splits
from lakebackup.plan.partitions import BackupRows, PartitionKey, RegionState
from lakebackup.rows.backups import Gap, Position, Scope
from lakebackup.rules.times import format_ts

#: The assumed size of an event in bytes, until the first flush.
FIRST_BYTES = 1024
# A task with fewer offsets takes longer to start than to run.
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
    """A planned flush: the offsets to read (`positions`), and data for its feed (`context`).

    `tasks[i]`: indexes of the positions that Spark task i reads. `since`: changes up to this ts are not
    captured. `floor`: where the log starts if this is its first flush, None: at the first checkpoint.
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
        """The checkpoint before this flush, None: none is known."""
        return self.newest.checkpoint if self.newest else self.floor


def due_in(last: tuple[int, int] | None, every_s: float, now_s: float) -> float:
    """Seconds until the next flush must start, to end `every_s` after the start of the last one.

    Assumes that both take equally long. `last`: start and end of the last one (us), by a clock that may be
    ahead of that of `now_s` (s).
    """
    if last is None:
        return 0.0
    started, finished = (timestamp / 1e6 for timestamp in last)
    due = started + every_s - min(max(finished - started, 0.0), every_s / 2)
    return min(max(due - now_s, 0.0), every_s)


def waiting(regions: Sequence[RegionState], read_ends: Mapping[PartitionKey, int]) -> int:
    """How many offsets are not read yet. `read_ends`: partition -> the end of its last read."""
    return sum(region.end - begins(region, read_ends) for region in regions)


def begins(region: RegionState, read_ends: Mapping[PartitionKey, int]) -> int:
    """The first offset to read of a partition: where the last read ended, or its low watermark."""
    return min(max(read_ends.get(region.key, 0), region.low), region.end)


def positions(
    rows: BackupRows,
    regions: Sequence[RegionState],
    read_ends: Mapping[PartitionKey, int],
    most: int,
    cuts: Collection[PartitionKey] = (),
) -> tuple[Position, ...]:
    """The offsets that a flush reads, about `most` in all: an equal share of each partition's unread ones.

    `cuts`: partitions whose offset in `read_ends` was set back, which is recorded even if there is nothing to
    read.
    """
    share = min(1.0, most / max(1, waiting(regions, read_ends)))
    flush_positions = []
    for region in regions:
        start = begins(region, read_ends)
        end = min(region.end, start + ceil((region.end - start) * share))
        if end > start or region.key not in read_ends or region.key in cuts:
            flush_positions.append(rows.position(region, start, end))
    return tuple(flush_positions)


def gaps(
    rows: BackupRows,
    regions: Sequence[RegionState],
    read_ends: Mapping[PartitionKey, int],
    newest: Newest | None,
    *,
    allowed: bool,
    cuts: Mapping[PartitionKey, int] = MappingProxyType({}),
) -> tuple[Gap, ...]:
    """Events that were lost unread: Kafka deleted them, the topic was recreated, or the partition was
    truncated (its leader was elected uncleanly) at the offset in `cuts`, or at its end.

    Raises Refused unless `allowed`. `to_ts` is set when the flush is published. A partition that was added
    after the task started must be read from offset 0.
    """
    last = {(scope, region): (epoch, end) for (scope, epoch, region), end in read_ends.items()}
    times = (newest.end_ts, newest.end_ts) if newest else (0, rows.ts)
    lost = []
    for state in regions:
        known_end = read_ends.get(state.key)
        previous = (
            (state.epoch, known_end) if known_end is not None else last.get((state.scope, state.region))
        )
        if previous is None and newest is None:
            continue
        epoch, end = previous or (state.epoch, 0)
        cut = state.key in cuts or (epoch == state.epoch and end > state.end)
        if epoch == state.epoch and state.low <= end and not cut:
            continue
        purged = epoch == state.epoch and not cut
        partition = state.scope, epoch, state.region
        start, stop = cuts.get(state.key, state.end) if cut else end, state.low if purged else None
        lost.append(rows.gap(partition, start, stop, from_ts=times[0], to_ts=times[1], bridged=True))
    if lost and not allowed:
        first = lost[0]
        raise Refused(
            f"Events of topic {first.scope}, partition {first.region}, from offset {first.from_position} on "
            + (
                "were deleted"
                if first.reason == "purged"
                else "were lost when the topic was recreated or truncated,"
            )
            + " before they were read"
            + (f"; so were those of {len(lost) - 1} more partitions." if len(lost) > 1 else "."),
            hint="Take a new full of the database and start a new task, or continue without those events: "
            "stop this one and start it with --allow-gaps.",
        )
    return tuple(lost)


def tasks(positions: Sequence[Position], parallelism: int) -> tuple[tuple[int, ...], ...]:
    """Which partitions each task reads, so that all tasks read about as many offsets."""
    sizes = [position.end_position - position.start_position for position in positions]
    return splits.share_out(sizes, parallelism, _LEAST_OFFSETS)


def first_floor(
    regions: Sequence[RegionState], since: int | None, lost: Sequence[str], *, allowed: bool
) -> int | None:
    """The ts from which a new task's log is complete; None: from its first checkpoint.

    `since`: of --startts; `lost`: partitions whose oldest event is later than that.
    """
    if since is None:
        return 0 if all(region.low == 0 for region in regions) else None
    if lost and not allowed:
        raise Refused(
            f"The feed has deleted events that may have come after {since}: {', '.join(lost[:3])}"
            f"{' and others' if len(lost) > 3 else ''} starts later.",
            hint="Give --startts of a later backup, or --allow-gaps.",
        )
    return since


def physical_ms(ts: int, domain: str) -> int:
    """Milliseconds since 1970 UTC of a ts; in a `tso` of TiDB's PD they are the upper bits."""
    return ts >> 18 if domain == "tso" else ts


def ts_at(ms: int, domain: str) -> int:
    """The least ts within a millisecond since 1970 UTC."""
    return ms << 18 if domain == "tso" else ms


def shown_ts(ts: int, domain: str) -> str:
    """A ts as text, with its time."""
    return f"{ts} ({format_ts(physical_ms(ts, domain))})"
