"""A model in plain Python of a topic and its backups: chains, levels, merges, prunes and gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tests.support.kafka_truth import Record

from lakebackup.errors import Refused, UsageProblem

PARTITIONS = 2
Mode = Literal["auto", "full", "incr-diff", "incr-accu"]
Records = list[list[tuple[int, "Record"]]]


@dataclass
class Log:
    """One partition: the written records, and the first offset that the broker still has."""

    rows: list[Record] = field(default_factory=list)
    low: int = 0


@dataclass(frozen=True)
class ExpectedBackup:
    """The backup that must be taken next; `ends` and `records` by partition.

    `over`: it continues over a gap. `gap_start_ts`: for each new gap, the end_ts of the last backup before
    it.
    """

    kind: str
    level: int
    parent: ModelBackup | None
    ends: list[int]
    records: Records
    entries: int
    over: bool
    gap_start_ts: list[int]


@dataclass
class ModelBackup:
    """A backup that exists. `over`: it or one that it depends on continues over a gap."""

    backup_id: str
    number: int
    position: int
    parent_place: int
    base: str
    level: int
    kind: str
    end_ts: int
    ends: list[int]
    records: Records
    over: bool
    is_deleted: bool = False

    @property
    def link(self) -> tuple[int, int]:
        return self.position, self.number


class Model:
    """The expected state of a topic's backups."""

    def __init__(self) -> None:
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.backups: list[ModelBackup] = []
        self.holes: list[tuple[int, int]] = []
        self.held_ids: set[str] = set()
        self.leaving: set[str] = set()
        self.redundancy: int | None = None

    def path(self, of: ModelBackup) -> list[ModelBackup] | None:
        """The backups that a restore to `of` needs, in order; None if one of them is gone."""
        if of.is_deleted:
            return None
        if not of.parent_place:
            return [of]
        parents = [
            t
            for t in self.backups
            if t.base == of.base and t.position == of.parent_place and t.link < of.link
        ]
        paths = (self.path(t) for t in sorted(parents, key=lambda t: t.number, reverse=True))
        prefix = next((p for p in paths if p), None)
        return [*prefix, of] if prefix else None

    def points(self) -> list[ModelBackup]:
        """The backups that can be restored, in order."""
        return sorted((t for t in self.backups if self.path(t)), key=lambda t: t.link)

    def aside(self, of: ModelBackup) -> bool:
        """Whether a later backup of its chain continues from one before it."""
        return any(
            t.base == of.base and t.link > of.link and t.parent_place < of.position and not t.is_deleted
            for t in self.backups
        )

    def newest(self, level: int | None = None) -> ModelBackup | None:
        """The newest backup that can be continued, of this level or below."""
        candidates = [t for t in self.points() if not self.aside(t) and (level is None or t.level <= level)]
        return candidates[-1] if candidates else None

    def next(
        self, mode: Mode, level: int | None, parent_id: ModelBackup | None, on_gap: str
    ) -> ExpectedBackup | type[Refused] | type[UsageProblem]:
        """The backup that a run takes now, or the error with which it is refused."""
        newest, new_level, kind = self.newest(), level or 1, "differential"
        parent = newest
        if newest and mode != "full":
            if mode == "incr-accu":
                kind = "cumulative"
            if parent_id:
                if not self.path(parent_id) or self.aside(parent_id) or parent_id.backup_id in self.leaving:
                    return Refused
                lowest_level = max(1, parent_id.level + (kind == "cumulative"))
                if level is not None and level < lowest_level:
                    return UsageProblem
                parent, new_level = parent_id, level or lowest_level
            else:
                parent = self.newest(new_level - (kind == "cumulative")) or newest
            if (
                any(end < log.low for end, log in zip(parent.ends, self.logs, strict=True))
                and parent != newest
            ):
                if parent_id:
                    return Refused
                parent, new_level, kind = newest, max(new_level, newest.level), "differential"
        points = sorted(self.points(), key=lambda t: (t.end_ts, t.number))
        last = points[-1] if points else None
        gaps = [p for p, log in enumerate(self.logs) if last and last.ends[p] < log.low]
        if mode == "full" or parent is None or (gaps and on_gap == "full"):
            parent, new_level, kind = None, 0, "full"
        starts = [max(log.low, parent.ends[p] if parent else 0) for p, log in enumerate(self.logs)]
        new: Records = [
            [(i, row) for i, row in enumerate(log.rows) if i >= starts[p]] for p, log in enumerate(self.logs)
        ]
        return ExpectedBackup(
            kind=kind,
            level=new_level,
            parent=parent,
            ends=[len(log.rows) for log in self.logs],
            records=[[*(parent.records[p] if parent else []), *rows] for p, rows in enumerate(new)],
            entries=sum(map(len, new)),
            over=parent is not None and (parent.over or bool(gaps)),
            gap_start_ts=[last.end_ts for _ in gaps if last],
        )

    def merged(self, level: int, until: ModelBackup | None) -> list[ModelBackup] | type[Refused]:
        """The backups that a merge replaces by one; empty if there are fewer than two."""
        tip = until or self.newest()
        path = self.path(tip) if tip else None
        if not path:
            return Refused
        end = max((i for i, t in enumerate(path, 1) if t.level == level), default=0)
        start = 0 if level == 1 else end
        while start and path[start - 1].level == level:
            start -= 1
        if level > 1 and tip and self.aside(tip):
            return Refused
        if end - start < 2:
            return []
        if start and until and path[start - 1].backup_id in self.leaving:
            return Refused
        return path[start:end]

    def away(self) -> set[str]:
        """The ids of backups whose whole contents are in a restorable merge."""
        ids: set[str] = set()
        for merge in self.points():
            for last in self.points() if merge.number > merge.position else ():
                if last.position == merge.position and last.number < merge.number:
                    ids |= {t.backup_id for t in self.path(last) or () if t.position > merge.parent_place}
        return ids

    def staying(self, days: int | None) -> set[str]:
        """The ids of the backups that no prune may delete."""
        merged_ids, points = self.away(), self.points()
        stay = [t for t in points if t.backup_id in self.held_ids or t is points[-1]]
        usable = [t for t in points if t.backup_id not in merged_ids]
        fulls = [t for t in usable if t.kind == "full"]
        stay += fulls[-1:]
        if days is None:
            few = self.redundancy is None or len(fulls) < self.redundancy
            least = 0 if few else fulls[-(self.redundancy or 1)].position
            first = {t.base: min(o.position for o in self.backups if o.base == t.base) for t in usable}
            stay += [t for t in usable if first[t.base] >= least]
        return {needed.backup_id for t in stay for needed in self.path(t) or ()}

    def restore_at(self, to_ts: int | None) -> tuple[Records, bool] | None:
        """The records that a restore to a time writes, and whether over a gap; None after the last backup."""
        candidates = [t for t in self.points() if to_ts is None or to_ts <= t.end_ts]
        if not candidates:
            return None
        backup = candidates[-1]
        if to_ts is not None:
            # Of two backups that end at this instant the later is used; for times before it, the earlier.
            backup = next((t for t in reversed(candidates) if t.end_ts == to_ts), candidates[0])
        in_hole = to_ts is not None and any(
            hole_start < to_ts < hole_end for hole_start, hole_end in self.holes
        )
        return until(backup.records, to_ts), backup.over or in_hole


def until(records: Records, to_ts: int | None) -> Records:
    return [[row for row in rows if to_ts is None or row[1].timestamp <= to_ts] for rows in records]
