"""Which sets of backups make up the same state, and what they cost.

A backup leads from its parent's place to its own, a full one from nothing. Every path from nothing to a
place is a complete set: a merge bypasses what it merged, and a full all that came before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Step:
    """A complete backup on a restore path; `used`: a restore takes it by default."""

    backup_id: str
    kind: str
    level: int
    place: int
    parent_place: int | None
    end_ts: int
    used: bool

    @property
    def start(self) -> int:
        """The place it leads on from; 0: from nothing."""
        return self.parent_place or 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What reading takes."""

    files: int = 0
    bytes: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class BackupSet:
    """A complete set of backups, oldest first; `least`: which of bytes, files, backups it takes least of."""

    steps: tuple[Step, ...]
    cost: Cost
    least: tuple[str, ...] = ()


def on_path(steps: Iterable[Step], place: int) -> list[Step]:
    """Those of `steps` (in the order of their places) that some path to `place` takes."""
    ordered = list(steps)
    reached = {0}
    ahead = []
    for step in ordered:
        if step.start in reached:
            reached.add(step.place)
            ahead.append(step)
    needed, found = {place}, []
    for step in reversed(ahead):
        if step.place in needed:
            needed.add(step.start)
            found.append(step)
    return found[::-1]


def other_sets(steps: Sequence[Step], place: int, costs: Mapping[str, Cost]) -> list[BackupSet]:
    """The set that is used, those that take less of something, and the one of the most backups, each once.

    `steps` as of `on_path`.
    """
    weights: dict[str, Callable[[Step], int]] = {
        "bytes": lambda step: costs.get(step.backup_id, Cost()).bytes,
        "files": lambda step: costs.get(step.backup_id, Cost()).files,
        "backups": lambda _: 1,
        "": lambda _: -1,
    }
    found: dict[tuple[str, ...], tuple[Sequence[Step], list[str]]] = {}
    used = [step for step in steps if step.used]
    found[tuple(step.backup_id for step in used)] = used, []
    for name, weight in weights.items():
        path = _lightest(steps, place, weight)
        # What is used counts as the least when nothing takes less.
        if sum(map(weight, path)) == sum(map(weight, used)):
            path = used
        found.setdefault(tuple(step.backup_id for step in path), (path, []))[1].append(name)
    return [
        BackupSet(tuple(path), _added(path, costs), tuple(filter(None, of))) for path, of in found.values()
    ]


def _lightest(steps: Sequence[Step], place: int, weight: Callable[[Step], int]) -> list[Step]:
    best: dict[int, tuple[int, Step | None]] = {0: (0, None)}
    for step in steps:
        so_far = best[step.start][0] + weight(step)
        if step.place not in best or so_far < best[step.place][0]:
            best[step.place] = so_far, step
    path: list[Step] = []
    while (last := best[place][1]) is not None:
        path.append(last)
        place = last.start
    return path[::-1]


def _added(steps: Iterable[Step], costs: Mapping[str, Cost]) -> Cost:
    some = [costs.get(step.backup_id, Cost()) for step in steps]
    return Cost(*(sum(getattr(cost, name) for cost in some) for name in ("files", "bytes", "entries")))
