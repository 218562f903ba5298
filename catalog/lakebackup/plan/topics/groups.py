"""Plan the offsets of consumer groups in restored topics. It does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakebackup.errors import LakebackupError, NotFound, UsageProblem
from lakebackup.rows.base import pick

Outcome = Literal[
    "moved", "unchanged", "at_end", "in_gap", "ahead", "active", "unknown", "not_restored", "topic_deleted"
]

MEANINGS: Mapping[str, str] = {
    "moved": "set to the same message",
    "unchanged": "has that offset already",
    "at_end": "was behind the end of what was restored: set to that end",
    "in_gap": "was where the backup has no records: set to the next one",
    "ahead": "is further in the target already: left alone (--force moves it back)",
    "active": "has members in the target: left alone; stop them and run it again",
    "unknown": "others wrote among the restored records, or keys changed partitions: left alone",
    "not_restored": "nothing of this partition was restored there: left alone",
    "topic_deleted": "its topic was deleted in the source: left alone; --to-time before that restores it",
}
#: Outcomes that set an offset, and those that make the run Incomplete.
SETTING_OUTCOMES = frozenset({"moved", "at_end", "in_gap"})
FAILED = frozenset({"active", "unknown"})


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a group for one partition; `position` is the next offset to read."""

    scope: str
    region: str
    position: int
    leader_epoch: int | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group. `protocol` is classic or consumer; `state` is in lower case: stable, empty, dead."""

    group_id: str
    protocol: str
    state: str
    members: int
    offsets: tuple[Committed, ...]

    @property
    def active(self) -> bool:
        """Whether the group has members. Then Kafka lets nobody else change its offsets."""
        return self.members > 0 or self.state not in ("empty", "dead")


@dataclass(frozen=True, slots=True)
class Move:
    """What happens to the committed offset of one group in one partition.

    `target_offset` is the offset to set in the target. `offsets` is the number of source offsets that the
    group skips (in_gap), or that were not restored (at_end).
    """

    group_id: str
    target_group: str
    scope: str
    region: str
    position: int
    target_offset: Committed | None
    outcome: Outcome
    offsets: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The moves, sorted by group, topic and partition."""

    moves: tuple[Move, ...]

    @property
    def offsets_to_set(self) -> tuple[tuple[Move, Committed], ...]:
        """The moves that set an offset, each with that offset."""
        return tuple(
            (m, m.target_offset) for m in self.moves if m.outcome in SETTING_OUTCOMES and m.target_offset
        )

    @property
    def failed(self) -> tuple[Move, ...]:
        """The moves that cannot be done, so that the run is Incomplete."""
        return tuple(move for move in self.moves if move.outcome in FAILED)

    def counts(self) -> dict[str, int]:
        """The number of moves of each outcome."""
        return dict(Counter(move.outcome for move in self.moves))


def choose_targets(
    restored: Iterable[Mapping[str, Any]], target_topics: Mapping[str, str], maps: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, LakebackupError]]:
    """Choose for each source topic the target topic in which its groups' offsets are set.

    That is the topic that `maps` names. Without a map it is the only topic that the source topic was restored
    into, or of several the one with the same name. Returns two mappings from source topics: to the id of the
    target topic, and, where there is none, to the error for its groups: UsageProblem (several topics),
    NotFound (nothing was restored into the topic that `maps` names).

    `restored`: rows of the query restored_into. `target_topics`: name -> id of the topics in the target now.
    """
    targets_by_scope: dict[str, dict[str, str]] = {}
    for row in restored:
        if target_topics.get(row["target_scope"]) == row["target_epoch"]:
            targets_by_scope.setdefault(row["scope"], {})[row["target_scope"]] = row["target_epoch"]
    target_ids: dict[str, str] = {}
    unclear: dict[str, LakebackupError] = {}
    for scope, targets in targets_by_scope.items():
        only_target = next(iter(targets)) if len(targets) == 1 else scope
        name = maps.get(scope, scope if scope in targets else only_target)
        target_names = ", ".join(sorted(targets))
        if name in targets:
            target_ids[scope] = targets[name]
        elif scope in maps:
            unclear[scope] = NotFound(
                f"Nothing of topic {scope} was restored into {name} of this cluster.",
                hint=f"It was restored into {target_names}.",
            )
        else:
            unclear[scope] = UsageProblem(
                f"Topic {scope} was restored into several topics: {target_names}.",
                hint=f"Choose one with --map {scope}=NAME.",
            )
    return target_ids, unclear


def plan_groups(
    rows: Iterable[Mapping[str, Any]],
    names: Mapping[str, str],
    target_groups: Mapping[str, GroupState],
    *,
    force: bool = False,
) -> GroupPlan:
    """Plan a move for each row of the query group_moves.

    `names`: group -> its name in the target; other groups are skipped. `target_groups`: the target's groups
    by name. A group with members is left alone, and so is one that has read further, unless `force` is set.
    """
    selected = [row for row in rows if row["group_id"] in names]
    # A recreated topic also has rows of the deleted topic. They are skipped if the partition has another row.
    movable = {_key(row) for row in selected if row["outcome"] != "topic_deleted"}
    target_offsets = {
        (g.group_id, c.scope, c.region): c.position for g in target_groups.values() for c in g.offsets
    }
    moves = [
        _move(row, names[row["group_id"]], target_groups, target_offsets, force=force)
        for row in selected
        if row["outcome"] != "topic_deleted" or _key(row) not in movable
    ]
    return GroupPlan(tuple(sorted(moves, key=lambda m: (m.group_id, m.scope, int(m.region)))))


def _move(
    row: Mapping[str, Any],
    name: str,
    target_groups: Mapping[str, GroupState],
    target_offsets: Mapping[tuple[str, str, str], int],
    *,
    force: bool,
) -> Move:
    outcome: Outcome = row["outcome"]
    target_offset = None
    if outcome in SETTING_OUTCOMES:
        target_offset = Committed(
            row["target_scope"], row["target_region"], row["target_position"], metadata=row["metadata"]
        )
    if target_offset and name in target_groups:
        position = target_offsets.get((name, target_offset.scope, target_offset.region))
        if position == target_offset.position:
            outcome = "unchanged"
        elif target_groups[name].active:
            outcome = "active"
        elif position is not None and position > target_offset.position and not force:
            outcome = "ahead"
    offsets = int(row["offsets"] or 0) if row["outcome"] in ("at_end", "in_gap") else 0
    values = {"target_group": name, "target_offset": target_offset, "outcome": outcome, "offsets": offsets}
    return pick(Move, {**row, **values})


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["group_id"], row["scope"], row["region"]
