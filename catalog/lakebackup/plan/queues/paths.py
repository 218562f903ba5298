"""Finds the backups of an engine's queues that restore a requested state. Pure.

A restore path is a full and the backups applied on top of it, in order. A path covers the tids from its
full's last tid on. A backup covers the instants after its start (where its parent ended), up to its end.

Of the paths that cover a point, the one that goes furthest comes first. A backup reads the ends of the queues
one after the other, so a message written before the point may be only in a later backup. (The plan drops
backups at the path's end that hold nothing from before the point.) A path does not go beyond a restore of the
engine, after which tids are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from lakebackup.errors import NotFound, Refused
from lakebackup.rules.times import format_ts


@dataclass(frozen=True, slots=True)
class Point:
    """A backup of an engine's queues: a row of the query queue_restore_points; `*_ts` in ms.

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
        """Whether the backup has reached the tid, or covers the instant (ms)."""
        if tid is not None:
            return tid <= self.last_tid
        return ts is not None and self.start_ts < ts <= self.end_ts


@dataclass(frozen=True, slots=True)
class RestorePath:
    """`links`: a full and the backups applied on top of it. `reached_index`: the index of the first one that
    covers the point."""

    links: tuple[Point, ...]
    reached_index: int

    @property
    def full(self) -> Point:
        return self.links[0]

    @property
    def last(self) -> Point:
        return self.links[-1]

    @property
    def backup_ids(self) -> tuple[str, ...]:
        return tuple(link.backup_id for link in self.links)

    def is_within(self, path: RestorePath) -> bool:
        """Whether another path begins with this one and continues it."""
        return len(self.links) < len(path.links) and self.links == path.links[: len(self.links)]

    def last_index_by(self, upto_tid: int | None) -> int:
        """The index of the last backup whose last tid is at most `upto_tid` (None: any), or 0.

        The transactions open at its end are known.
        """
        indexes = [
            index for index, link in enumerate(self.links) if upto_tid is None or link.last_tid <= upto_tid
        ]
        return max(indexes, default=0)

    def segments(self) -> list[int]:
        """For each link, how many restores of the engine precede it. No transaction continues across one."""
        return list(accumulate((link.restore_id is not None for link in self.links[1:]), initial=0))


def chain_of(points: Sequence[Point], last: Point) -> tuple[Point, ...]:
    """The backups that `last` depends on, and `last` itself, in order."""
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
    """The paths that restore the point, the best one first; there is at least one.

    Without a point, it is the path to the end of the newest backup.
    `backup`: the id of the last backup that may be applied on top of the full. Only with it can the path
    follow a history that the engine no longer continues. Raises NotFound (no backup can be restored), Refused
    (no path covers the point; it names the nearest points that one covers).
    """
    if backup is not None:
        last_points = [_named_point(points, backup)]
    else:
        last_points = [p for p in points if p.intact and not p.superseded]
    if not last_points:
        raise NotFound(
            f"There is no backup of {source} that can be restored.",
            hint="`lakebackup list` shows what there is, the view unusable_backups why it cannot be used.",
        )
    if tid is None and ts is None:
        newest = chain_of(points, max(last_points, key=lambda p: p.number))
        return iter([RestorePath(newest, len(newest) - 1)])
    numbers = {p.backup_id: p.number for p in points}
    last_points.sort(key=lambda p: (numbers.get(p.base, 0), p.number), reverse=True)
    paths = _covering(points, last_points, tid, ts)
    first = next(paths, None)
    if first is None:
        # Every backup in the chain of a named one can be restored too.
        near = last_points if backup is None else chain_of(points, last_points[0])
        raise _outside(source, points, near, tid, ts)
    return chain([first], paths)


def reached_by(points: Sequence[Point], restore_path: RestorePath, tid: int) -> Point:
    """The first backup of the path's chain that has reached a tid, whether or not the path contains it.

    After a restore to that tid, this backup and the later ones belong to another history.
    """
    candidates = [p for p in points if p.base == restore_path.full.base and p.intact and not p.superseded]
    reached = [
        p
        for p in {*candidates, *restore_path.links}
        if p.last_tid >= tid and p.number <= restore_path.last.number
    ]
    return min(reached, key=lambda p: p.number, default=restore_path.last)


def last_ended_by(points: Sequence[Point], restore_path: RestorePath, tid: int | None) -> Point:
    """The newest backup of the path's history that ended at or before a tid (None: any), whether or not the
    path contains it."""
    candidates = (p for p in _history(points, restore_path.last) if tid is None or p.last_tid <= tid)
    return next(candidates, restore_path.full)


def _history(points: Sequence[Point], last: Point) -> Iterator[Point]:
    """The complete backups of the history that ends with `last`, the newest first, whatever they depend on.

    A restore of the engine abandons the backups between the restored one and the first one taken after it.
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
    points: Sequence[Point], last_points: Sequence[Point], tid: int | None, ts: int | None
) -> Iterator[RestorePath]:
    fulls = {p.backup_id: p for p in points}
    for last in last_points:
        full = fulls.get(last.base, last)
        # Check the bounds first: finding a chain looks through all backups.
        if tid is not None and not full.last_tid <= tid <= last.last_tid:
            continue
        if ts is not None and not full.start_ts < ts <= last.end_ts:
            continue
        links = chain_of(points, last)
        reached_index = next((index for index, link in enumerate(links) if link.covers(tid, ts)), None)
        if reached_index is not None and not any(link.restore_id for link in links[reached_index + 1 :]):
            yield RestorePath(links, reached_index)


def _named_point(points: Sequence[Point], backup_id: str) -> Point:
    point = next((p for p in points if p.backup_id == backup_id), None)
    if point is None or point.state != "complete" or not point.intact:
        reason = "there is no such backup" if point is None else point.state
        if point is not None and point.state == "complete":
            reason = "a backup that it needs cannot be used"
        raise Refused(
            f"Backup {backup_id} cannot be restored: {reason}.",
            hint="The view unusable_backups says why, queue_points what can be restored.",
        )
    return point


def _outside(
    source: str, points: Sequence[Point], last_points: Sequence[Point], tid: int | None, ts: int | None
) -> Refused:
    """The error for a point that no path covers. It names the nearest covered points before and after it."""
    format_point: Callable[[int], str]
    if tid is not None:
        point, format_point = tid, lambda value: f"tid {value}"
        ends = [p.last_tid for p in last_points]
        starts = [p.last_tid for p in points if p.backup_id in {last.base for last in last_points}]
    else:
        point, format_point = ts or 0, format_ts
        ends = [p.end_ts for p in last_points]
        starts = [p.end_ts if p.kind == "full" else p.start_ts + 1 for p in last_points]
    near = [
        f"{word} {format_point(neighbour)}"
        for word, neighbour in (
            ("before:", max((end for end in ends if end < point), default=None)),
            ("after:", min((start for start in starts if start > point), default=None)),
        )
        if neighbour is not None
    ]
    superseded_points = [p for p in points if p.superseded and p.intact]
    superseded_point = next(
        (restore_path.last for restore_path in _covering(points, superseded_points[::-1], tid, ts)), None
    )
    superseded_hint = (
        f" Backup {superseded_point.backup_id} is from before the engine was restored to an earlier state: "
        f"`--backup {superseded_point.backup_id}` restores that history."
        if superseded_point
        else ""
    )
    return Refused(
        f"{format_point(point)} of {source} is covered by no backup (nearest that is, {', '.join(near)})."
        if near
        else f"{format_point(point)} of {source} is covered by no backup.",
        hint=f"Choose one of these.{superseded_hint}" if near else superseded_hint.strip(),
    )
