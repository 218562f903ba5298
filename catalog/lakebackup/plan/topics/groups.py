"""Which offsets consumer groups get in restored topics, and why some get none. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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
class GroupThere:
    """A group of the target as it is: whether it has members, and its offset of each (topic, partition)."""

    active: bool
    positions: Mapping[tuple[str, str], int]


class Landing(NamedTuple):
    """A place in the target: topic, partition, next offset to read."""

    scope: str
    region: str
    position: int


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of one group. `offsets`: source offsets skipped (in_gap) or missing (at_end)."""

    group_id: str
    target_group: str
    scope: str
    region: str
    position: int
    metadata: str | None
    landing: Landing | None
    outcome: Outcome
    offsets: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What will become of each partition of each group, sorted by group, topic and partition."""

    moves: tuple[Move, ...]

    @property
    def put(self) -> tuple[tuple[Move, Landing], ...]:
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
    there: Mapping[str, GroupThere],
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
    moves = [
        _move(row, names[row["group_id"]], there.get(names[row["group_id"]]), force=force)
        for row in chosen
        if row["outcome"] != "topic_deleted" or _key(row) not in better
    ]
    return GroupPlan(tuple(sorted(moves, key=lambda m: (m.group_id, m.scope, int(m.region)))))


def _move(row: Mapping[str, Any], name: str, there: GroupThere | None, *, force: bool) -> Move:
    outcome: Outcome = row["outcome"]
    landing = None
    if outcome in PUT:
        landing = Landing(row["target_scope"], row["target_region"], row["target_position"])
    if landing and there:
        now = there.positions.get(landing[:2])
        if now == landing.position:
            outcome = "unchanged"
        elif there.active:
            outcome = "active"
        elif now is not None and now > landing.position and not force:
            outcome = "ahead"
    offsets = int(row["offsets"] or 0) if row["outcome"] in ("at_end", "in_gap") else 0
    own = {"target_group": name, "landing": landing, "outcome": outcome, "offsets": offsets}
    return pick(Move, {**row, **own})


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["group_id"], row["scope"], row["region"]
