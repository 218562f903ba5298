"""Which backups of an engine's queues restore a state that a person asks for. Pure.

A restore path is a full and the backups applied on top of it, in order. It covers a tid from its full's last
tid on. A backup covers an instant that is not after its end and is after its start (where its parent ended).
Of the paths that cover a point the one that goes furthest comes first: what was written to one queue while
the ends of others were looked at already is in a later backup. (Backups at its end that hold nothing from
before the point are left off.) It does not go beyond a restore of the engine, after which tids are used
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from lakebackup.errors import NotFound, Refused
from lakebackup.rules.times import format_ts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Point:
    """A backup of an engine's queues, as the query queue_restore_points has it; `*_ts` in ms.

    `continues_to`: the number of the last backup before the restore `restore_id` whose history it continues.
    """

    backup_id: str
    number: int
    kind: str
    base: str
    link: int
    unlinked: int
    state: str
    intact: bool
    superseded: bool
    last_tid: int
    snapshot_id: str | None
    restore_id: str | None
    start_ts: int
    end_ts: int
    continues_to: int | None

    def covers(self, tid: int | None, ts: int | None) -> bool:
        """Whether it is the first of a path to have reached the point."""
        if tid is not None:
            return tid <= self.last_tid
        return ts is not None and self.start_ts < ts <= self.end_ts


@dataclass(frozen=True, slots=True)
class RestorePath:
    """`links`: a full and what is put upon it. `at`: the place of the one that first reaches the point."""

    links: tuple[Point, ...]
    at: int

    @property
    def full(self) -> Point:
        return self.links[0]

    @property
    def last(self) -> Point:
        return self.links[-1]

    def is_within(self, other: RestorePath) -> bool:
        """Whether it is the beginning of another path."""
        return len(self.links) < len(other.links) and self.links == other.links[: len(self.links)]

    def done_by(self, upto_tid: int | None) -> int:
        """The place of the last backup all of whose messages are up to a tid (None: any), whatever they are;
        the transactions open at its end are known."""
        done = [
            place for place, link in enumerate(self.links) if upto_tid is None or link.last_tid <= upto_tid
        ]
        return max(done, default=0)

    def segments(self) -> list[int]:
        """The number of restores of the engine before each link: transactions do not live on behind one."""
        return list(accumulate((link.restore_id is not None for link in self.links[1:]), initial=0))


def chain_of(points: Sequence[Point], last: Point) -> tuple[Point, ...]:
    """The backups that one needs and itself, in order."""
    needed = [p for p in points if p.base == last.base and p.link <= last.link < p.unlinked]
    return tuple(sorted((p for p in needed if p.state == "complete"), key=lambda p: p.link))


def restore_paths(
    source: str,
    points: Sequence[Point],
    *,
    backup: str | None = None,
    tid: int | None = None,
    ts: int | None = None,
) -> Iterator[RestorePath]:
    """The paths that restore the point, the best first, one at least; without a point, to the end of the
    newest backup.

    `backup`: the id of the last one that may be applied on top of the full; only with it is a history
    chosen that the engine no longer continues. Raises NotFound, Refused with the nearest points that can be
    restored.
    """
    if backup is not None:
        lasts = [_named(points, backup)]
    else:
        lasts = [p for p in points if p.intact and not p.superseded]
    if not lasts:
        raise NotFound(
            f"There is no backup of {source} that can be restored.",
            hint="`lakebackup list` shows what there is, the view unusable_backups why it cannot be used.",
        )
    if tid is None and ts is None:
        newest = chain_of(points, max(lasts, key=lambda p: p.number))
        return iter([RestorePath(newest, len(newest) - 1)])
    numbers = {p.backup_id: p.number for p in points}
    lasts.sort(key=lambda p: (numbers.get(p.base, 0), p.number), reverse=True)
    found = _covering(points, lasts, tid, ts)
    first = next(found, None)
    if first is None:
        # Of one that was named, everything before it in its chain can be restored too.
        near = lasts if backup is None else chain_of(points, lasts[0])
        raise _outside(source, points, near, tid, ts)
    return chain([first], found)


def reached_by(points: Sequence[Point], restore_path: RestorePath, tid: int) -> Point:
    """The first backup of the path's chain that has reached a tid, whether or not the path contains it.

    Behind a restore to that tid, what the backups from it on hold is another history.
    """
    lying = [p for p in points if p.base == restore_path.full.base and p.intact and not p.superseded]
    reached = [
        p for p in {*lying, *restore_path.links} if p.last_tid >= tid and p.number <= restore_path.last.number
    ]
    return min(reached, key=lambda p: p.number, default=restore_path.last)


def last_ended_by(points: Sequence[Point], restore_path: RestorePath, tid: int | None) -> Point:
    """The newest backup of the path's history that ended at or before a tid (None: any), whether or not the
    path contains it."""
    candidates = (p for p in _history(points, restore_path.last) if tid is None or p.last_tid <= tid)
    return next(candidates, restore_path.full)


def _history(points: Sequence[Point], last: Point) -> Iterator[Point]:
    """The complete backups of the history that ends with one, the newest first, whatever they depend on.

    A restore of the engine leaves the backups between the one that it restored and the next one taken.
    """
    ascending = sorted(points, key=lambda p: p.number)
    first_numbers = {p.restore_id: p.number for p in reversed(ascending)}
    newest = last.number
    for point in reversed(ascending):
        if point.number > newest:
            continue
        if point.state == "complete":
            yield point
        if point.continues_to is not None and point.number == first_numbers[point.restore_id]:
            newest = point.continues_to


def _covering(
    points: Sequence[Point], lasts: Sequence[Point], tid: int | None, ts: int | None
) -> Iterator[RestorePath]:
    fulls = {p.backup_id: p for p in points}
    for last in lasts:
        full = fulls.get(last.base, last)
        # Only of those that may is the chain looked for among all the backups.
        if tid is not None and not full.last_tid <= tid <= last.last_tid:
            continue
        if ts is not None and not full.start_ts < ts <= last.end_ts:
            continue
        links = chain_of(points, last)
        at = next((place for place, link in enumerate(links) if link.covers(tid, ts)), None)
        if at is not None and not any(link.restore_id for link in links[at + 1 :]):
            yield RestorePath(links, at)


def _named(points: Sequence[Point], backup: str) -> Point:
    found = next((p for p in points if p.backup_id == backup), None)
    if found is None or found.state != "complete" or not found.intact:
        why = "there is no such backup" if found is None else found.state
        if found is not None and found.state == "complete":
            why = "a backup that it needs cannot be used"
        raise Refused(
            f"Backup {backup} cannot be restored: {why}.",
            hint="The view unusable_backups says why, queue_points what can be restored.",
        )
    return found


def _outside(
    source: str, points: Sequence[Point], lasts: Sequence[Point], tid: int | None, ts: int | None
) -> Refused:
    """Why there is no path, and the nearest points before and after that have one."""
    shown: Callable[[int], str]
    if tid is not None:
        wanted, shown = tid, lambda value: f"tid {value}"
        ends = [p.last_tid for p in lasts]
        starts = [p.last_tid for p in points if p.backup_id in {last.base for last in lasts}]
    else:
        wanted, shown = ts or 0, format_ts
        ends = [p.end_ts for p in lasts]
        starts = [p.end_ts if p.kind == "full" else p.start_ts + 1 for p in lasts]
    near = [
        f"{word} {shown(found)}"
        for word, found in (
            ("before:", max((end for end in ends if end < wanted), default=None)),
            ("after:", min((start for start in starts if start > wanted), default=None)),
        )
        if found is not None
    ]
    aside = [p for p in points if p.superseded and p.intact]
    held = next((restore_path.last for restore_path in _covering(points, aside[::-1], tid, ts)), None)
    instead = (
        f" Backup {held.backup_id} is from before the engine was restored to an earlier state: "
        f"`--backup {held.backup_id}` restores that history."
        if held
        else ""
    )
    return Refused(
        f"{shown(wanted)} of {source} is covered by no backup (nearest that is, {', '.join(near)})."
        if near
        else f"{shown(wanted)} of {source} is covered by no backup.",
        hint=f"Choose one of these.{instead}" if near else instead.strip(),
    )
