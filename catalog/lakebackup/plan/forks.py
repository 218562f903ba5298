"""Whether a source's history was cut back behind what was backed up of it, and from which backup on.

A Kafka leader that lacks records (unclean election) goes on from where its own log ends: offsets that were
backed up then hold other records, or none. Each term of a leader has an epoch, which only grows, and a log
knows where the records of each epoch end. A backup stands in the log's history as long as the records of the
epoch that it ended in, and of those before, reach its end. A clean change of leaders cuts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakebackup.plan.backup_topics import RegionState

Region = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Stood:
    """Where a backup ended in a partition: the next offset to read, and the leader's epoch then.

    `place` is the backup's; `epoch` the topic's id; `leader_epoch` None: not known.
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

    def ends(self, asked: Collection[Stood]) -> Mapping[Stood, EpochEnd]:
        """For each: where the records of its leader's epoch end. Left out: what the log does not know."""
        ...

    def differing(self, asked: Collection[Stood]) -> Collection[Stood]:
        """Those whose last backed-up record is another one in the log now; one that is gone is no other."""
        ...


@dataclass(frozen=True, slots=True)
class Fork:
    """A history that was cut back: the backups that hold what is no part of it any more, newest first.

    `parent`: the backup at the branch point, which the next one goes on from; None: there is none.
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
            "an unclean leader election"
        )


def suspects(regions: Iterable[RegionState], stood: Iterable[Stood]) -> list[Stood]:
    """Those that have to be looked at: another epoch than then, or an end before what was backed up.

    Nothing can be said, and nothing is lost, where the log begins behind the backup's end.
    """
    now = {(r.scope, r.epoch, r.region): r for r in regions}
    return [
        s
        for s in stood
        if (r := now.get(s.where))
        and s.position > r.low
        and (s.leader_epoch is None or s.leader_epoch != r.leader_epoch or s.position > r.high)
    ]


def cut_back(stood: Collection[Stood], highs: Mapping[Region, int], log: Log) -> set[Stood]:
    """Those whose end is behind what the log still has of their history. `highs`: the log's ends.

    Where the log's last epoch up to theirs is an older one, both may have gone on from there on their own, up
    to the same offset: then the records themselves are compared.
    """
    short = {s for s in stood if s.position > highs[s.where]}
    rest = [s for s in stood if s not in short]
    known = [s for s in rest if s.leader_epoch is not None]
    ends = log.ends(known) if known else {}
    unsure = []
    for s in rest:
        end = ends.get(s)
        if end is None:
            unsure.append(s)
        elif end.position < s.position:
            short.add(s)
        elif end.leader_epoch != s.leader_epoch:
            unsure.append(s)
    return short.union(log.differing(unsure)) if unsure else short


def first_lost(
    history: Mapping[Region, Sequence[Stood]], highs: Mapping[Region, int], log: Log
) -> dict[Region, Stood]:
    """Of each partition, the first backup whose end was cut; the last of each is known to be.

    `history`: the ends of all backups in the order of their places. Asks for all partitions at once, as often
    as halving the longest history takes.
    """
    low = dict.fromkeys(history, 0)
    high = {where: len(ends) - 1 for where, ends in history.items()}
    while left := [where for where in history if low[where] < high[where]]:
        middle = {where: (low[where] + high[where]) // 2 for where in left}
        lost = cut_back([history[where][at] for where, at in middle.items()], highs, log)
        for where, at in middle.items():
            if history[where][at] in lost:
                high[where] = at
            else:
                low[where] = at + 1
    return {where: ends[low[where]] for where, ends in history.items()}
