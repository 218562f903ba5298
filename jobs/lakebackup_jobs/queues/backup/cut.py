"""Determines where a backup ends in each partition of its queues, so that it holds a state that once existed.

The ends are read at one instant while writers continue. So a message with a greater tid may be before the
end of its partition while one with a smaller tid, for another partition, is still on its way. Therefore the
backup also takes the messages that arrive after the ends, up to the last one whose tid is not above the
greatest tid taken so far. Taking them may raise that tid, so this repeats until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.plan.partitions import RegionState
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.format.records import OFFSET
from lakebackup_jobs.kafka.memory import Longs
from lakebackup_jobs.queues.backup.skipped import MessageOffset, by_partition
from lakebackup_jobs.queues.messages import read_messages, without

#: The greatest tid of a partition is looked for in so many offsets before its end; some hold no message.
_LAST = 64


@dataclass(frozen=True, slots=True)
class Tails:
    """Reads the tids at the ends of partitions."""

    client: Mapping[str, str]
    isolation: str
    names: HeaderNames
    skipped: frozenset[MessageOffset] = frozenset()

    def settled(
        self, regions: Sequence[RegionState], read_regions: Callable[[], Sequence[RegionState]]
    ) -> list[RegionState]:
        """Return the partitions with consistent ends; `read_regions` returns the partitions as they are
        now."""
        current = read_regions()
        if not any(_grown(region, later) for region, later in zip(regions, current, strict=True)):
            return list(regions)
        ends = [self._tids(r, max(r.low, r.end - _LAST), r.end)[1] for r in regions]
        greatest_tid = max((int(tids.max()) for tids in ends if len(tids)), default=-1)
        pairs = list(zip(regions, read_regions(), strict=True))
        tails = [self._tail(region, later) if _grown(region, later) else None for region, later in pairs]
        counts = [0] * len(pairs)
        while True:
            new_counts = [_up_to(tail[1], greatest_tid) if tail else 0 for tail in tails]
            if new_counts == counts:
                break
            counts = new_counts
            prefixes = [(tail[1], n) for tail, n in zip(tails, new_counts, strict=True) if tail and n]
            greatest_tid = max([greatest_tid, *(int(tids[:n].max()) for tids, n in prefixes)])
        return [
            replace(
                region,
                end=int(tail[0][count - 1]) + 1,
                high=later.high,
                leader_epoch=later.leader_epoch,
            )
            if tail and count
            else region
            for (region, later), tail, count in zip(pairs, tails, counts, strict=True)
        ]

    def _tail(self, region: RegionState, later: RegionState) -> tuple[Longs, Longs]:
        """Return offsets and tids of the messages since the end, up to the watermark of a restore if there is
        one: what follows it is another history."""
        offsets, tids = self._tids(region, region.end, later.end)
        mark = np.flatnonzero(tids < 0)
        until = int(mark[0]) if len(mark) else len(tids)
        return offsets[:until], tids[:until]

    def _tids(self, region: RegionState, start: int, end: int) -> tuple[Longs, Longs]:
        """Return offsets and tids of the messages in [start, end)."""
        blocks = list(self._blocks(region, start, end)) if start < end else []
        if not blocks:
            empty = np.empty(0, np.int64)
            return empty, empty
        offsets, tids = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        return offsets, tids

    def _blocks(self, region: RegionState, start: int, end: int) -> Iterator[tuple[Longs, Longs]]:
        location = f"{region.scope}[{region.region}]"
        source = reader(self.client, self.isolation, (region.scope, region.epoch))
        skipped = by_partition(self.skipped).get((region.scope, region.epoch, region.region), ())
        with closing(source.blocks(region.scope, int(region.region), start, end)) as blocks:
            for block in blocks:
                columns = without(block.columns(location), skipped)
                yield columns.rows[:, OFFSET].copy(), read_messages(columns, self.names, location).tids


def _grown(region: RegionState, later: RegionState) -> bool:
    return later.end > region.end and later.epoch == region.epoch


def _up_to(tids: Longs, greatest_tid: int) -> int:
    """Return the number of messages up to the last one whose tid is not above `greatest_tid`."""
    indices = np.flatnonzero(tids <= greatest_tid)
    return int(indices[-1]) + 1 if len(indices) else 0
