"""Finds the sets of backups that restore the same state, and what they cost.

Backups are the edges of a graph whose nodes are places: a backup leads from its parent's place to its own, a
full from 0. Every path from 0 to a place is a complete set. A merge bypasses the backups that it merged, and
a full bypasses all earlier ones. One pass over the backups, in the order of their places, finds a cheapest
path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """A complete backup on a restore path; `used`: a restore reads it by default."""

    backup_id: str
    kind: str
    level: int
    place: int
    parent_place: int | None
    end_ts: int
    used: bool

    @property
    def start(self) -> int:
        """The place from which it leads on; 0 for a full."""
        return self.parent_place or 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What must be read of some backups."""

    files: int = 0
    bytes: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class BackupSet:
    """A complete set of backups, oldest first. `least`: those of bytes, files and backups of which no other
    set has fewer."""

    steps: tuple[Step, ...]
    cost: Cost
    least: tuple[str, ...] = ()


def on_path(steps: Iterable[Step], end: int) -> list[Step]:
    """Those of `steps` (in the order of their places) that lie on a path to `end`."""
    ordered = list(steps)
    reached = {0}
    reachable = []
    for step in ordered:
        if step.start in reached:
            reached.add(step.place)
            reachable.append(step)
    needed, path = {end}, []
    for step in reversed(reachable):
        if step.place in needed:
            needed.add(step.start)
            path.append(step)
    return path[::-1]


def backup_sets(steps: Sequence[Step], end: int, costs: Mapping[str, Cost]) -> list[BackupSet]:
    """The default set, the sets that have less of something, and the one of the most backups, each once.

    `steps`: as `on_path` returns them.
    """
    weights: dict[str, Callable[[Step], int]] = {
        "bytes": lambda step: costs.get(step.backup_id, Cost()).bytes,
        "files": lambda step: costs.get(step.backup_id, Cost()).files,
        "backups": lambda _: 1,
        "": lambda _: -1,
    }
    sets: dict[tuple[str, ...], tuple[Sequence[Step], list[str]]] = {}
    default_steps = [step for step in steps if step.used]
    sets[tuple(step.backup_id for step in default_steps)] = default_steps, []
    for name, weight in weights.items():
        path = _lightest(steps, end, weight)
        # If no other set has less, the default one counts as the least.
        if sum(map(weight, path)) == sum(map(weight, default_steps)):
            path = default_steps
        sets.setdefault(tuple(step.backup_id for step in path), (path, []))[1].append(name)
    return [
        BackupSet(tuple(path), _total_cost(path, costs), tuple(filter(None, least)))
        for path, least in sets.values()
    ]


def _lightest(steps: Sequence[Step], end_place: int, weight: Callable[[Step], int]) -> list[Step]:
    best: dict[int, tuple[int, Step | None]] = {0: (0, None)}
    for step in steps:
        total = best[step.start][0] + weight(step)
        if step.place not in best or total < best[step.place][0]:
            best[step.place] = total, step
    path: list[Step] = []
    while (last := best[end_place][1]) is not None:
        path.append(last)
        end_place = last.start
    return path[::-1]


def _total_cost(steps: Iterable[Step], costs: Mapping[str, Cost]) -> Cost:
    step_costs = [costs.get(step.backup_id, Cost()) for step in steps]
    return Cost(*(sum(getattr(cost, name) for cost in step_costs) for name in ("files", "bytes", "entries")))
