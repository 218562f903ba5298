"""Where a backup ends in each partition of its queues, so that it has a state that there once was.

The ends are of one instant, and writers continue: of two messages the later may be before the end of its
partition while the earlier, which another partition gets, is on its way. So what came to the partitions
meanwhile is taken up to the greatest tid that is before the ends.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.format.records import OFFSET
from lakebackup_jobs.queues.backup.skipped import by_partition
from lakebackup_jobs.queues.messages import read_messages, without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakebackup.formats.queues.headers import HeaderNames
    from lakebackup.plan.partitions import RegionState
    from lakebackup_jobs.kafka.memory import Longs
    from lakebackup_jobs.queues.backup.skipped import Place

#: The greatest tid of a partition is among so many offsets before its end; some are of no message.
_LAST = 64


@dataclass(frozen=True, slots=True)
class Tails:
    """Reads the tids at the ends of partitions."""

    client: Mapping[str, str]
    isolation: str
    names: HeaderNames
    skipped: frozenset[Place] = frozenset()

    def settled(
        self, regions: Sequence[RegionState], again: Callable[[], Sequence[RegionState]]
    ) -> list[RegionState]:
        """The partitions with ends that are of one tid; `again` returns where they end by now."""
        soon = again()
        if not any(_grown(region, later) for region, later in zip(regions, soon, strict=True)):
            return list(regions)
        ends = [self._tids(r, max(r.low, r.end - _LAST), r.end)[1] for r in regions]
        most = max((int(tids.max()) for tids in ends if len(tids)), default=-1)
        pairs = list(zip(regions, again(), strict=True))
        tails = [self._tail(region, later) if _grown(region, later) else None for region, later in pairs]
        taken = [0] * len(pairs)
        while True:
            counts = [_up_to(tail[1], most) if tail else 0 for tail in tails]
            if counts == taken:
                break
            taken = counts
            found = [(tail[1], n) for tail, n in zip(tails, counts, strict=True) if tail and n]
            most = max([most, *(int(tids[:n].max()) for tids, n in found)])
        return [
            replace(
                region,
                end=int(tail[0][count - 1]) + 1,
                high=later.high,
                leader_epoch=later.leader_epoch,
            )
            if tail and count
            else region
            for (region, later), tail, count in zip(pairs, tails, taken, strict=True)
        ]

    def _tail(self, region: RegionState, later: RegionState) -> tuple[Longs, Longs]:
        """What came since. What a restore puts there, behind its watermark, is another history."""
        offsets, tids = self._tids(region, region.end, later.end)
        mark = np.flatnonzero(tids < 0)
        until = int(mark[0]) if len(mark) else len(tids)
        return offsets[:until], tids[:until]

    def _tids(self, region: RegionState, start: int, end: int) -> tuple[Longs, Longs]:
        """Offsets and tids of the messages in [start, end)."""
        found = list(self._blocks(region, start, end)) if start < end else []
        if not found:
            nothing = np.empty(0, np.int64)
            return nothing, nothing
        offsets, tids = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return offsets, tids

    def _blocks(self, region: RegionState, start: int, end: int) -> Iterator[tuple[Longs, Longs]]:
        place = f"{region.scope}[{region.region}]"
        source = reader(self.client, self.isolation, (region.scope, region.epoch))
        skipped = by_partition(self.skipped).get((region.scope, region.epoch, region.region), ())
        with closing(source.blocks(region.scope, int(region.region), start, end)) as blocks:
            for block in blocks:
                columns = without(block.columns(place), skipped)
                yield columns.rows[:, OFFSET].copy(), read_messages(columns, self.names, place).tids


def _grown(region: RegionState, later: RegionState) -> bool:
    return later.end > region.end and later.epoch == region.epoch


def _up_to(tids: Longs, most: int) -> int:
    """How many messages there are up to the last one whose tid is not greater."""
    found = np.flatnonzero(tids <= most)
    return int(found[-1]) + 1 if len(found) else 0
