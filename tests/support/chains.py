"""What a topic and its backups should hold: chains, levels, merges, prunes and gaps in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tests.support.kafka_truth import Record

from lakebackup.errors import Refused, UsageProblem

PARTITIONS = 2
Mode = Literal["auto", "full", "incr-diff", "incr-accu"]
Held = list[list[tuple[int, "Record"]]]


@dataclass
class Log:
    """One partition: what was written, and the first offset that the broker still has."""

    rows: list[Record] = field(default_factory=list)
    low: int = 0


@dataclass(frozen=True)
class Made:
    """What the next backup must be: `held` and `ends` of each partition; `over`: it goes on over a gap."""

    kind: str
    level: int
    parent: Taken | None
    ends: list[int]
    held: Held
    entries: int
    over: bool
    after: list[int]


@dataclass
class Taken:
    """A backup that exists. `after`: ends of the last backups before the gaps that it noticed."""

    backup_id: str
    number: int
    place: int
    parent_place: int
    base: str
    level: int
    kind: str
    end_ts: int
    ends: list[int]
    held: Held
    over: bool
    gone: bool = False

    @property
    def link(self) -> tuple[int, int]:
        return self.place, self.number


class Model:
    """What should be so."""

    def __init__(self) -> None:
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.taken: list[Taken] = []
        self.holes: list[tuple[int, int]] = []
        self.kept: set[str] = set()
        self.leaving: set[str] = set()
        self.redundancy: int | None = None

    def path(self, of: Taken) -> list[Taken] | None:
        """What it needs, in order; None when some of that is gone."""
        if of.gone:
            return None
        if not of.parent_place:
            return [of]
        before = [
            t for t in self.taken if t.base == of.base and t.place == of.parent_place and t.link < of.link
        ]
        paths = (self.path(t) for t in sorted(before, key=lambda t: t.number, reverse=True))
        found = next((p for p in paths if p), None)
        return [*found, of] if found else None

    def points(self) -> list[Taken]:
        """The backups that can be restored, in order."""
        return sorted((t for t in self.taken if self.path(t)), key=lambda t: t.link)

    def aside(self, of: Taken) -> bool:
        """Whether a later one of its chain goes on from one before it."""
        return any(
            t.base == of.base and t.link > of.link and t.parent_place < of.place and not t.gone
            for t in self.taken
        )

    def newest(self, level: int | None = None) -> Taken | None:
        """The last that can be continued, of that level or below."""
        found = [t for t in self.points() if not self.aside(t) and (level is None or t.level <= level)]
        return found[-1] if found else None

    def next(
        self, mode: Mode, level: int | None, asked: Taken | None, on_gap: str
    ) -> Made | type[Refused] | type[UsageProblem]:
        """What a backup taken now is, or how it is refused."""
        newest, wanted, kind = self.newest(), level or 1, "differential"
        parent = newest
        if newest and mode != "full":
            if mode == "incr-accu":
                kind = "cumulative"
            if asked:
                if not self.path(asked) or self.aside(asked) or asked.backup_id in self.leaving:
                    return Refused
                least = max(1, asked.level + (kind == "cumulative"))
                if level is not None and level < least:
                    return UsageProblem
                parent, wanted = asked, level or least
            else:
                parent = self.newest(wanted - (kind == "cumulative")) or newest
            if (
                any(end < log.low for end, log in zip(parent.ends, self.logs, strict=True))
                and parent != newest
            ):
                if asked:
                    return Refused
                parent, wanted, kind = newest, max(wanted, newest.level), "differential"
        points = sorted(self.points(), key=lambda t: (t.end_ts, t.number))
        last = points[-1] if points else None
        gaps = [p for p, log in enumerate(self.logs) if last and last.ends[p] < log.low]
        if mode == "full" or parent is None or (gaps and on_gap == "full"):
            parent, wanted, kind = None, 0, "full"
        starts = [max(log.low, parent.ends[p] if parent else 0) for p, log in enumerate(self.logs)]
        new: Held = [
            [(i, row) for i, row in enumerate(log.rows) if i >= starts[p]] for p, log in enumerate(self.logs)
        ]
        return Made(
            kind=kind,
            level=wanted,
            parent=parent,
            ends=[len(log.rows) for log in self.logs],
            held=[[*(parent.held[p] if parent else []), *rows] for p, rows in enumerate(new)],
            entries=sum(map(len, new)),
            over=parent is not None and (parent.over or bool(gaps)),
            after=[last.end_ts for _ in gaps if last],
        )

    def merged(self, level: int, until: Taken | None) -> list[Taken] | type[Refused]:
        """The backups that a merge makes one of; none when there are not two."""
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
        """Those of which a merge that is whole holds all."""
        found: set[str] = set()
        for merge in self.points():
            for last in self.points() if merge.number > merge.place else ():
                if last.place == merge.place and last.number < merge.number:
                    found |= {t.backup_id for t in self.path(last) or () if t.place > merge.parent_place}
        return found

    def staying(self, days: int | None) -> set[str]:
        """Those that no prune may delete."""
        away, points = self.away(), self.points()
        stay = [t for t in points if t.backup_id in self.kept or t is points[-1]]
        usable = [t for t in points if t.backup_id not in away]
        fulls = [t for t in usable if t.kind == "full"]
        stay += fulls[-1:]
        if days is None:
            few = self.redundancy is None or len(fulls) < self.redundancy
            least = 0 if few else fulls[-(self.redundancy or 1)].place
            first = {t.base: min(o.place for o in self.taken if o.base == t.base) for t in usable}
            stay += [t for t in usable if first[t.base] >= least]
        return {needed.backup_id for t in stay for needed in self.path(t) or ()}

    def at(self, to_ts: int | None) -> tuple[Held, bool] | None:
        """What a restore to a time gives, and whether over a gap; None behind the last backup."""
        found = [t for t in self.points() if to_ts is None or to_ts <= t.end_ts]
        if not found:
            return None
        chosen = found[-1]
        if to_ts is not None:
            # Of two that end at the same instant the later answers for it, the earlier for what is before.
            chosen = next((t for t in reversed(found) if t.end_ts == to_ts), found[0])
        lost = to_ts is not None and any(after < to_ts < before for after, before in self.holes)
        return until(chosen.held, to_ts), chosen.over or lost


def until(held: Held, to_ts: int | None) -> Held:
    return [[row for row in rows if to_ts is None or row[1].timestamp <= to_ts] for rows in held]
