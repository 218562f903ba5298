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
#: Whether the log still has the end of a backup. holds: it has the backup's last record. cut: its epochs
#: prove that the common history ends before that record. short: it ends before it. differs: it has another
#: record at that offset. gone: it has none there, as after a compaction. unknown: no data file has the last
#: record, so nothing is compared.
Verdict = Literal["holds", "cut", "short", "differs", "gone", "unknown"]
#: The verdicts that prove that the backup holds records which are no longer in the log's history.
LOST = frozenset({"cut", "short", "differs"})
_VERDICTS: Mapping[bool | None, Verdict] = {True: "holds", False: "differs", None: "gone"}


@dataclass(frozen=True, slots=True)
class BackupEnd:
    """Where a backup ended in a partition: the next offset to read, and the leader's epoch then, if known.

    `place` is the backup's column of that name, `epoch` the topic's id.
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
        """Return where the records of the leader's epoch of each backup end stop. Ends whose epoch the log
        does not know are left out."""
        ...

    def compared(self, backup_ends: Collection[BackupEnd]) -> Mapping[BackupEnd, bool | None]:
        """Return for each backup end whether the log still has the last record that was backed up; None if
        the log has no record there. Ends whose last record is in no file are left out."""
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
    """Return the ends in partitions that still hold records before the backup's end."""
    low = {r.key: r.low for r in regions}
    return [end for end in backup_ends if end.position > low.get(end.partition, end.position)]


def suspects(backup_ends: Iterable[BackupEnd], regions: Mapping[Region, RegionState]) -> list[BackupEnd]:
    """Return the ends that are beyond the log's end, or whose leader's epoch is not the present one."""
    return [
        end
        for end in backup_ends
        if end.position > regions[end.partition].high or _has_old_epoch(end, regions[end.partition])
    ]


def cut_back(
    backup_ends: Iterable[BackupEnd], regions: Mapping[Region, RegionState], log: Log
) -> dict[Region, int]:
    """Return the truncated partitions, each with the offset at which it was truncated. Where the log's epochs
    do not show that offset, it is the log's present end."""
    doubtful = suspects(backup_ends, regions)
    epoch_ends = _epoch_ends(doubtful, log)
    cuts = {}
    for end in doubtful:
        common_end = regions[end.partition].high
        if end in epoch_ends:
            common_end = min(epoch_ends[end].position, common_end)
        if common_end < end.position:
            cuts[end.partition] = common_end
    return cuts


def judge(
    backup_ends: Collection[BackupEnd], regions: Mapping[Region, RegionState], log: Log
) -> dict[BackupEnd, Verdict]:
    """Return whether the log has each backup's end. `regions` is the present state of the partitions.

    If a cluster was restored to an older state, other records may have been written under the same epoch. So
    where neither epochs nor the log's end decide, the records are compared.
    """
    epoch_ends = _epoch_ends(suspects(backup_ends, regions), log)
    verdicts: dict[BackupEnd, Verdict] = {}
    for end in backup_ends:
        high = regions[end.partition].high
        epoch_end = epoch_ends.get(end)
        if epoch_end and epoch_end.position < min(end.position, high):
            verdicts[end] = "cut"
        elif end.position > high or (epoch_end and epoch_end.position < end.position):
            verdicts[end] = "short"
        elif end.position == 0:
            verdicts[end] = "holds"
    undecided = [end for end in backup_ends if end not in verdicts]
    matches = log.compared(undecided) if undecided else {}
    for end in undecided:
        verdicts[end] = _VERDICTS[matches[end]] if end in matches else "unknown"
    return verdicts


def lost(verdicts: Mapping[BackupEnd, Verdict]) -> set[BackupEnd]:
    """Return the ends of backups that hold records which are no longer in the log's history."""
    return {end for end, verdict in verdicts.items() if verdict in LOST}


def earlier_lost(
    earlier: Mapping[Region, Sequence[BackupEnd]], regions: Mapping[Region, RegionState], log: Log
) -> set[BackupEnd]:
    """Judge partitions whose newest record is gone from the log by earlier backups. Return the ends that are
    lost.

    `earlier` has the ends of the backups before the newest, the last one first. In each partition, the first
    of them whose record is not gone decides, so at most one is returned.
    """
    lost_ends: set[BackupEnd] = set()
    remaining = {region: list(ends) for region, ends in earlier.items() if ends}
    while remaining:
        verdicts = judge([ends.pop(0) for ends in remaining.values()], regions, log)
        lost_ends |= lost(verdicts)
        undecided = {end.partition for end, verdict in verdicts.items() if verdict == "gone"}
        remaining = {region: ends for region, ends in remaining.items() if ends and region in undecided}
    return lost_ends


def first_lost(
    history: Mapping[Region, Sequence[BackupEnd]],
    regions: Mapping[Region, RegionState],
    log: Log,
    *,
    by_epoch: Collection[Region] = (),
) -> dict[Region, BackupEnd]:
    """Return for each partition the first backup whose end was truncated.

    `history` has the ends of all backups in the order of their places. The last one is known to be truncated.
    `by_epoch` has the partitions whose truncation is proved by epochs.

    This is a binary search, and each round of it judges one backup of every partition. If the record of that
    backup cannot be compared, the backup counts as part of the history in a partition of `by_epoch`.
    Elsewhere the backups after it are tried one by one. If none of them decides, it counts as truncated.
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


def _epoch_ends(backup_ends: Iterable[BackupEnd], log: Log) -> Mapping[BackupEnd, EpochEnd]:
    with_epoch = [end for end in backup_ends if end.leader_epoch is not None]
    return log.ends(with_epoch) if with_epoch else {}


def _has_old_epoch(end: BackupEnd, region: RegionState) -> bool:
    return end.leader_epoch is None or end.leader_epoch != region.leader_epoch
