"""Which topics a compaction rewrites, from what the catalog holds of them. Pure: rows in, a value out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.plan.partitions import StoredTopic
from lakebackup.plan.topics.generations import Held, is_compacted, tombstones_stay_ms
from lakebackup.rows.base import pick
from lakebackup.rules import patterns, topic_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class CompactTopic(StoredTopic):
    """A topic with the generation to write, and the restore point (`backup_id`, `end_ts`) it is made from.

    Tombstones with a timestamp before `drop_before` (ms) are dropped. `doubtful`: a tombstone may be missing
    in what was backed up.
    """

    backup_id: str
    end_ts: int
    drop_before: int
    doubtful: bool


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """`left_out`: topics that were not asked for by name, and why they stay as they are."""

    topics: tuple[CompactTopic, ...]
    left_out: Mapping[str, str]

    @property
    def batches(self) -> list[tuple[CompactTopic, ...]]:
        """Topics that become one backup: those of one restore point, since a backup ends at one instant."""
        ordered = sorted(self.topics, key=lambda t: (t.end_ts, t.backup_id, t.scope))
        return [tuple(some) for _, some in groupby(ordered, key=lambda t: (t.end_ts, t.backup_id))]


def plan_compaction(
    points: Iterable[Mapping[str, Any]],
    held: Iterable[Held],
    *,
    names: Sequence[str] = (),
    expressions: Sequence[str] = (),
    all_keyed: bool = False,
) -> CompactPlan:
    """From rows of the queries compact_points and generations; without any, all compacted topics but
    internal ones, which only come by name.

    Raises NotFound (no such topic), Refused (a named topic is not compacted, or has records without a key).
    """
    rows = {row["scope"]: row for row in points}
    if names or expressions:
        chosen = patterns.select(names, expressions, rows)
    else:
        chosen = sorted(scope for scope in rows if not patterns.is_internal(scope))
    known = {(h.scope, h.epoch): h for h in held}
    topics, left_out = [], {}
    for scope in chosen:
        row = rows[scope]
        reason = _objection(row, all_keyed)
        if reason and scope in names and not row["compacted"] and row["files"]:
            raise Refused(f"Topic {scope} cannot be compacted: {reason}.", hint=_HINTS[reason])
        if reason:
            left_out[scope] = reason
        else:
            topics.append(_topic(row, known[scope, row["epoch"]]))
    return CompactPlan(tuple(topics), left_out)


_NOT_COMPACTED = "its cleanup.policy does not say compact"
_NULL_KEYS = "it has records without a key, which nothing replaces"
_HINTS = {
    _NOT_COMPACTED: "--all-keyed compacts it all the same: only the latest record of each key is kept.",
    _NULL_KEYS: "Leave it out.",
}


def _objection(row: Mapping[str, Any], all_keyed: bool) -> str | None:
    if not (all_keyed or is_compacted(topic_settings.in_force(row["settings"]))):
        return _NOT_COMPACTED
    if row["null_keys"]:
        return _NULL_KEYS
    if row["compacted"]:
        return "nothing came since its last compaction"
    return None if row["files"] else "its backups hold no records"


def _topic(row: Mapping[str, Any], held: Held) -> CompactTopic:
    settings = topic_settings.in_force(row["settings"])
    stay = tombstones_stay_ms(settings)
    values = {
        **row,
        "generation": held.last + 1,
        "drop_before": row["end_ts"] - stay,
        "doubtful": is_compacted(settings) and held.longest_ms >= stay,
    }
    return pick(CompactTopic, values)
