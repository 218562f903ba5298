"""Which offsets consumer groups get in restored topics, and why some get none. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import LakebackupError, NotFound, UsageProblem
from lakebackup.rows.base import pick

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Outcome = Literal[
    "moved", "unchanged", "at_end", "in_gap", "ahead", "active", "unknown", "not_restored", "topic_deleted"
]

MEANINGS: Mapping[str, str] = {
    "moved": "put to the same message",
    "unchanged": "is there already",
    "at_end": "was behind the end of what was restored: put to that end",
    "in_gap": "was where the backup lost records: put to the next one",
    "ahead": "is further in the target already: left alone (--force puts it back)",
    "active": "has members in the target: left alone; stop them and do it again",
    "unknown": "others wrote among the restored records, or keys were redistributed: left alone",
    "not_restored": "nothing of this partition was restored there: left alone",
    "topic_deleted": "its topic was deleted in the source: left alone; --at-time before that restores it",
}
#: Outcomes that put a group somewhere, and those that keep a run from being complete.
PUT = frozenset({"moved", "at_end", "in_gap"})
SHORT = frozenset({"active", "unknown"})


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed for one partition; `position` is the next offset it reads."""

    scope: str
    region: str
    position: int
    leader_epoch: int | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group: `protocol` is classic or consumer, `state` lower case (stable, empty, dead, ...)."""

    group_id: str
    protocol: str
    state: str
    members: int
    offsets: tuple[Committed, ...]

    @property
    def active(self) -> bool:
        """Whether it has members, so that its offsets cannot be changed from outside."""
        return self.members > 0 or self.state not in ("empty", "dead")


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of one group. `landing`: its place in the target; `offsets`: source offsets skipped
    (in_gap) or missing (at_end)."""

    group_id: str
    target_group: str
    scope: str
    region: str
    position: int
    landing: Committed | None
    outcome: Outcome
    offsets: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What will become of each partition of each group, sorted by group, topic and partition."""

    moves: tuple[Move, ...]

    @property
    def put(self) -> tuple[tuple[Move, Committed], ...]:
        """Those to be put somewhere, and where."""
        return tuple((m, m.landing) for m in self.moves if m.outcome in PUT and m.landing)

    @property
    def short(self) -> tuple[Move, ...]:
        """Those that should have been put somewhere and could not."""
        return tuple(move for move in self.moves if move.outcome in SHORT)

    def counts(self) -> dict[str, int]:
        """How many partitions of groups have each outcome."""
        return dict(Counter(move.outcome for move in self.moves))


def choose_targets(
    restored: Iterable[Mapping[str, Any]], there: Mapping[str, str], maps: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, LakebackupError]]:
    """Source topic -> id of its topic in the target; of topics where that is not clear, the error for groups
    that use them: UsageProblem for a choice, NotFound for a map that leads nowhere.

    `restored`: rows of the query restored_into; `there`: name -> id of the target's topics now. Without a map
    a topic is where it was restored to; when that is several topics, the one of its own name.
    """
    found: dict[str, dict[str, str]] = {}
    for row in restored:
        if there.get(row["target_scope"]) == row["target_epoch"]:
            found.setdefault(row["scope"], {})[row["target_scope"]] = row["target_epoch"]
    chosen: dict[str, str] = {}
    unclear: dict[str, LakebackupError] = {}
    for scope, targets in found.items():
        name = maps.get(scope, scope if scope in targets or len(targets) > 1 else next(iter(targets)))
        places = ", ".join(sorted(targets))
        if name in targets:
            chosen[scope] = targets[name]
        elif scope in maps:
            unclear[scope] = NotFound(
                f"Nothing of topic {scope} was restored into {name} of this cluster.",
                hint=f"It was restored into {places}.",
            )
        else:
            unclear[scope] = UsageProblem(
                f"Topic {scope} was restored into several topics: {places}.",
                hint=f"Say which one with --map {scope}=NAME.",
            )
    return chosen, unclear


def plan_groups(
    rows: Iterable[Mapping[str, Any]],
    names: Mapping[str, str],
    there: Mapping[str, GroupState],
    *,
    force: bool = False,
) -> GroupPlan:
    """What becomes of each row of the query group_moves.

    `names`: group -> its name at the target, only these; `there`: the target's groups by name. A group with
    members is left alone, unless nothing would change; one that has read further keeps that.
    """
    chosen = [row for row in rows if row["group_id"] in names]
    # A recreated topic has its old offsets beside it: what can be moved counts.
    better = {_key(row) for row in chosen if row["outcome"] != "topic_deleted"}
    now = {(g.group_id, c.scope, c.region): c.position for g in there.values() for c in g.offsets}
    moves = [
        _move(row, names[row["group_id"]], there, now, force=force)
        for row in chosen
        if row["outcome"] != "topic_deleted" or _key(row) not in better
    ]
    return GroupPlan(tuple(sorted(moves, key=lambda m: (m.group_id, m.scope, int(m.region)))))


def _move(
    row: Mapping[str, Any],
    name: str,
    there: Mapping[str, GroupState],
    now: Mapping[tuple[str, str, str], int],
    *,
    force: bool,
) -> Move:
    outcome: Outcome = row["outcome"]
    landing = None
    if outcome in PUT:
        landing = Committed(
            row["target_scope"], row["target_region"], row["target_position"], metadata=row["metadata"]
        )
    if landing and name in there:
        position = now.get((name, landing.scope, landing.region))
        if position == landing.position:
            outcome = "unchanged"
        elif there[name].active:
            outcome = "active"
        elif position is not None and position > landing.position and not force:
            outcome = "ahead"
    offsets = int(row["offsets"] or 0) if row["outcome"] in ("at_end", "in_gap") else 0
    own = {"target_group": name, "landing": landing, "outcome": outcome, "offsets": offsets}
    return pick(Move, {**row, **own})


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["group_id"], row["scope"], row["region"]
