"""Whether a source's history was cut back behind what was backed up of it, and from which backup on.

A Kafka leader that lacks records (unclean election) continues from where its own log ends: offsets that were
backed up then hold other records, or none. Each leader has an epoch, which only grows, and a log knows where
the records of each epoch end. A backup is part of the log's history as long as the records up to the epoch
that it ended in reach its end. A clean change of leaders cuts nothing.

Epochs alone do not show every cut: a cluster whose disks were restored to an older state uses the same ones
again. So the last record of the newest backup is compared with the log's, then that of those before it until
one agrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakebackup.plan.partitions import RegionState

Region = tuple[str, str, str]
#: holds: its last record is in the log. cut: the log's epochs prove that its history ends before. short: the
#: log ends before. differs: another record is there. gone: none is, as after a compaction. unknown: no file
#: has the last record.
Verdict = Literal["holds", "cut", "short", "differs", "gone", "unknown"]
LOST = frozenset({"cut", "short", "differs"})
_VERDICTS: Mapping[bool | None, Verdict] = {True: "holds", False: "differs", None: "gone"}


@dataclass(frozen=True, slots=True)
class BackupEnd:
    """Where a backup ended in a partition: the next offset to read, and the leader's epoch then, if known.

    `place` is the backup's; `epoch` the topic's id.
    """

    place: int
    scope: str
    epoch: str
    region: str
    position: int
    leader_epoch: int | None

    @property
    def where(self) -> Region:
        """The partition."""
        return (self.scope, self.epoch, self.region)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The last epoch of a log that is not above the one asked for, and where its records end."""

    leader_epoch: int
    position: int


class Log(Protocol):
    """What a source answers about its history now; each call is one round of requests."""

    def ends(self, asked: Collection[BackupEnd]) -> Mapping[BackupEnd, EpochEnd]:
        """For each: where the records of its leader's epoch end. Left out: what the log does not know."""
        ...

    def compared(self, asked: Collection[BackupEnd]) -> Mapping[BackupEnd, bool | None]:
        """For each: whether its last backed-up record is the same in the log now; None: it is gone. Left out:
        those of which no file has it."""
        ...


@dataclass(frozen=True, slots=True)
class Fork:
    """A history that was cut back: the backups that hold what is no longer part of it, newest first.

    `parent`: the backup at the branch point, which the next one continues; None: there is none.
    `regions`: (topic, partition, offset that was backed up to) of the partitions that were cut.
    """

    parent: str | None
    backups: tuple[str, ...]
    regions: tuple[tuple[str, str, int], ...]

    def __str__(self) -> str:
        shown = [f"topic {scope}, partition {region}" for scope, region, _ in self.regions[:5]]
        more = f" and {len(self.regions) - 5} partitions more" if len(self.regions) > 5 else ""
        return (
            f"The source's history was cut back behind what was backed up ({'; '.join(shown)}{more}), as by "
            "an unclean leader election or a disk that was restored to an older state"
        )


def comparable(regions: Iterable[RegionState], backup_ends: Iterable[BackupEnd]) -> list[BackupEnd]:
    """Those of partitions that still hold something before the backup's end."""
    low = {r.place: r.low for r in regions}
    return [s for s in backup_ends if s.position > low.get(s.where, s.position)]


def suspects(backup_ends: Iterable[BackupEnd], now: Mapping[Region, RegionState]) -> list[BackupEnd]:
    """Those that the log's end or its leader's epoch makes doubtful."""
    return [s for s in backup_ends if s.position > now[s.where].high or _other_epoch(s, now[s.where])]


def cut_back(
    backup_ends: Iterable[BackupEnd], now: Mapping[Region, RegionState], log: Log
) -> dict[Region, int]:
    """Of the partitions that were cut back behind what was read of them: where they were, or end by now where
    the log's epochs do not show it."""
    doubtful = suspects(backup_ends, now)
    known = [s for s in doubtful if s.leader_epoch is not None]
    ends = log.ends(known) if known else {}
    found = {}
    for s in doubtful:
        end = min(ends[s].position, now[s.where].high) if s in ends else now[s.where].high
        if end < s.position:
            found[s.where] = end
    return found


def judge(
    backup_ends: Collection[BackupEnd], now: Mapping[Region, RegionState], log: Log
) -> dict[BackupEnd, Verdict]:
    """Whether each backup's end is in the log, of which `now` is the present state.

    Where a cluster was restored to an older state, other records may have come in under the same epoch. So
    what epochs do not prove cut is compared by its records.
    """
    known = [s for s in suspects(backup_ends, now) if s.leader_epoch is not None]
    ends = log.ends(known) if known else {}
    found: dict[BackupEnd, Verdict] = {}
    for s in backup_ends:
        high = now[s.where].high
        end = ends.get(s)
        if end and end.position < min(s.position, high):
            found[s] = "cut"
        elif s.position > high or (end and end.position < s.position):
            found[s] = "short"
        elif s.position == 0:
            found[s] = "holds"
    same = log.compared(rest) if (rest := [s for s in backup_ends if s not in found]) else {}
    for s in rest:
        found[s] = _VERDICTS[same[s]] if s in same else "unknown"
    return found


def lost(found: Mapping[BackupEnd, Verdict]) -> set[BackupEnd]:
    """Those that hold what is no longer in the log's history."""
    return {s for s, verdict in found.items() if verdict in LOST}


def earlier_lost(
    earlier: Mapping[Region, Sequence[BackupEnd]], now: Mapping[Region, RegionState], log: Log
) -> set[BackupEnd]:
    """Of partitions whose newest record is gone from the log, the newest backup whose record differs.

    `earlier`: the ends of backups before the newest, the last one first; of each partition the first record
    that is there decides.
    """
    found: set[BackupEnd] = set()
    rest = {where: list(ends) for where, ends in earlier.items() if ends}
    while rest:
        verdicts = judge([ends.pop(0) for ends in rest.values()], now, log)
        found |= lost(verdicts)
        gone = {s.where for s, verdict in verdicts.items() if verdict == "gone"}
        rest = {where: ends for where, ends in rest.items() if ends and where in gone}
    return found


def first_lost(
    history: Mapping[Region, Sequence[BackupEnd]],
    now: Mapping[Region, RegionState],
    log: Log,
    *,
    by_epoch: Collection[Region] = (),
) -> dict[Region, BackupEnd]:
    """Of each partition, the first backup whose end was cut; the last of each is known to be.

    `history`: the ends of all backups in the order of their places. `by_epoch`: partitions whose cut epochs
    prove: there a backup whose record cannot be compared counts as part of the history, elsewhere it does
    not. A binary search that asks for all partitions at once.
    """
    low = dict.fromkeys(history, 0)
    high = {where: len(ends) - 1 for where, ends in history.items()}
    at = {where: high[where] // 2 for where in history}
    while left := [where for where in history if low[where] < high[where]]:
        verdicts = judge([history[where][at[where]] for where in left], now, log)
        for where in left:
            verdict = verdicts[history[where][at[where]]]
            if verdict in LOST:
                high[where] = at[where]
            elif verdict == "holds" or where in by_epoch:
                low[where] = at[where] + 1
            elif at[where] + 1 < high[where]:
                at[where] += 1
                continue
            else:
                high[where] = (low[where] + high[where]) // 2
            at[where] = (low[where] + high[where]) // 2
    return {where: ends[low[where]] for where, ends in history.items()}


def _other_epoch(end: BackupEnd, region: RegionState) -> bool:
    return end.leader_epoch is None or end.leader_epoch != region.leader_epoch
