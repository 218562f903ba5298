"""Finds out whether a source's history was truncated after it was backed up, and from which backup on.

A Kafka leader that lacks records (unclean election) continues from where its own log ends. Offsets that were
backed up then hold other records, or none. Each leader has an epoch, which only grows, and a log knows where
the records of each epoch end. A backup is part of the log's history as long as the log's records up to the
epoch in which the backup ended reach the backup's end. A clean change of leaders truncates nothing.

Epochs alone do not show every truncation: a cluster whose disks were restored to an older state uses the same
epochs again. So the last record of the newest backup is compared with the log's record, then that of the
backups before it, until one agrees. A binary search finds the first backup that does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lakebackup.plan.partitions import RegionState

Region = tuple[str, str, str]
#: Whether the end of a backup is in the log. holds: the log has its last record. cut: the log's epochs prove
#: that their common history ends before. short: the log ends before. differs: the log has another record
#: there. gone: the log has none there, as after a compaction. unknown: no file has the last record.
Verdict = Literal["holds", "cut", "short", "differs", "gone", "unknown"]
LOST = frozenset({"cut", "short", "differs"})
_VERDICTS: Mapping[bool | None, Verdict] = {True: "holds", False: "differs", None: "gone"}


@dataclass(frozen=True, slots=True)
class BackupEnd:
    """Where a backup ended in a partition: the next offset to read, and the leader's epoch then, if known.

    `place`: of the backup; `epoch`: the topic's id.
    """

    place: int
    scope: str
    epoch: str
    region: str
    position: int
    leader_epoch: int | None

    @property
    def partition(self) -> Region:
        """The partition."""
        return (self.scope, self.epoch, self.region)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The last epoch of a log that is not above the requested one, and where its records end."""

    leader_epoch: int
    position: int


class Log(Protocol):
    """The present log of a source. Each call is one round of requests."""

    def ends(self, backup_ends: Collection[BackupEnd]) -> Mapping[BackupEnd, EpochEnd]:
        """For each end: where the records of its leader's epoch end. Ends that the log does not know are
        left out."""
        ...

    def compared(self, backup_ends: Collection[BackupEnd]) -> Mapping[BackupEnd, bool | None]:
        """For each end: whether the log still has the last record that was backed up; None: the log has none
        there. Ends whose last record is in no file are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Fork:
    """A truncated history. `backups`: those that hold records which are no longer part of it, newest first.

    `parent`: the backup at the branch point, which the next one continues; None: there is none.
    `regions`: (topic, partition, offset up to which it was backed up) of the truncated partitions.
    """

    parent: str | None
    backups: tuple[str, ...]
    regions: tuple[tuple[str, str, int], ...]

    def __str__(self) -> str:
        texts = [f"topic {scope}, partition {region}" for scope, region, _ in self.regions[:5]]
        tail = f" and {len(self.regions) - 5} partitions more" if len(self.regions) > 5 else ""
        return (
            f"The source's history was cut back behind what was backed up ({'; '.join(texts)}{tail}), as by "
            "an unclean leader election or a disk that was restored to an older state"
        )


def comparable(regions: Iterable[RegionState], backup_ends: Iterable[BackupEnd]) -> list[BackupEnd]:
    """The ends in partitions that still hold records before the backup's end."""
    low = {r.key: r.low for r in regions}
    return [s for s in backup_ends if s.position > low.get(s.partition, s.position)]


def suspects(backup_ends: Iterable[BackupEnd], regions: Mapping[Region, RegionState]) -> list[BackupEnd]:
    """The ends that the log's end or its leader's epoch makes doubtful."""
    return [
        s
        for s in backup_ends
        if s.position > regions[s.partition].high or _other_epoch(s, regions[s.partition])
    ]


def cut_back(
    backup_ends: Iterable[BackupEnd], regions: Mapping[Region, RegionState], log: Log
) -> dict[Region, int]:
    """The truncated partitions, each with the offset at which it was truncated, or with its present end where
    the log's epochs do not show that offset."""
    doubtful = suspects(backup_ends, regions)
    with_epoch = [s for s in doubtful if s.leader_epoch is not None]
    ends = log.ends(with_epoch) if with_epoch else {}
    cuts = {}
    for s in doubtful:
        end = min(ends[s].position, regions[s.partition].high) if s in ends else regions[s.partition].high
        if end < s.position:
            cuts[s.partition] = end
    return cuts


def judge(
    backup_ends: Collection[BackupEnd], regions: Mapping[Region, RegionState], log: Log
) -> dict[BackupEnd, Verdict]:
    """Whether each backup's end is in the log. `regions`: the present state of its partitions.

    If a cluster was restored to an older state, other records may have been written under the same epoch. So
    the ends that epochs do not prove to be cut are compared by their records.
    """
    with_epoch = [s for s in suspects(backup_ends, regions) if s.leader_epoch is not None]
    ends = log.ends(with_epoch) if with_epoch else {}
    verdicts: dict[BackupEnd, Verdict] = {}
    for s in backup_ends:
        high = regions[s.partition].high
        end = ends.get(s)
        if end and end.position < min(s.position, high):
            verdicts[s] = "cut"
        elif s.position > high or (end and end.position < s.position):
            verdicts[s] = "short"
        elif s.position == 0:
            verdicts[s] = "holds"
    matches = log.compared(undecided) if (undecided := [s for s in backup_ends if s not in verdicts]) else {}
    for s in undecided:
        verdicts[s] = _VERDICTS[matches[s]] if s in matches else "unknown"
    return verdicts


def lost(verdicts: Mapping[BackupEnd, Verdict]) -> set[BackupEnd]:
    """The ends that hold records which are no longer in the log's history."""
    return {s for s, verdict in verdicts.items() if verdict in LOST}


def earlier_lost(
    earlier: Mapping[Region, Sequence[BackupEnd]], regions: Mapping[Region, RegionState], log: Log
) -> set[BackupEnd]:
    """For partitions whose newest record is gone from the log, the newest backup whose record differs.

    `earlier`: the ends of the backups before the newest, the last one first. In each partition, the first
    record that the log still has decides.
    """
    lost_ends: set[BackupEnd] = set()
    remaining = {region: list(ends) for region, ends in earlier.items() if ends}
    while remaining:
        verdicts = judge([ends.pop(0) for ends in remaining.values()], regions, log)
        lost_ends |= lost(verdicts)
        undecided = {s.partition for s, verdict in verdicts.items() if verdict == "gone"}
        remaining = {region: ends for region, ends in remaining.items() if ends and region in undecided}
    return lost_ends


def first_lost(
    history: Mapping[Region, Sequence[BackupEnd]],
    regions: Mapping[Region, RegionState],
    log: Log,
    *,
    by_epoch: Collection[Region] = (),
) -> dict[Region, BackupEnd]:
    """For each partition, the first backup whose end was truncated. The last one is known to be truncated.

    `history`: the ends of all backups in the order of their places. `by_epoch`: the partitions whose
    truncation epochs prove. There, a backup whose record cannot be compared counts as part of the history;
    elsewhere it does not. This is a binary search that asks for all partitions at once.
    """
    low = dict.fromkeys(history, 0)
    high = {region: len(ends) - 1 for region, ends in history.items()}
    probes = {region: high[region] // 2 for region in history}
    while unresolved := [region for region in history if low[region] < high[region]]:
        verdicts = judge([history[region][probes[region]] for region in unresolved], regions, log)
        for region in unresolved:
            verdict = verdicts[history[region][probes[region]]]
            if verdict in LOST:
                high[region] = probes[region]
            elif verdict == "holds" or region in by_epoch:
                low[region] = probes[region] + 1
            elif probes[region] + 1 < high[region]:
                probes[region] += 1
                continue
            else:
                high[region] = (low[region] + high[region]) // 2
            probes[region] = (low[region] + high[region]) // 2
    return {region: ends[low[region]] for region, ends in history.items()}


def _other_epoch(end: BackupEnd, region: RegionState) -> bool:
    return end.leader_epoch is None or end.leader_epoch != region.leader_epoch
