"""Decides when a compacted topic is read from its start again.

Compaction by the broker removes records that a newer record of the same key replaced; backups keep them. So
the backups of a compacted topic form generations: a generation starts with the whole topic, and later backups
add new records. A new one starts when the present one holds too many removed records, or may lack a
tombstone. `lakebackup compact` writes a new generation from stored backups.

Any topic starts a new generation when the source deleted records before a backup read them: the records after
the gap do not continue those before it.

Internal topics (`__consumer_offsets`) start a new one for that reason only: the purpose of their backups is
to keep the removed records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, Protocol

from lakebackup.errors import Refused
from lakebackup.plan.partitions import StoredTopic, TopicState
from lakebackup.rows.base import pick
from lakebackup.rules import patterns, topic_settings
from lakebackup.store.plan_file import EMPTY, PlanFile
from lakebackup.store.reader import CatalogReader

Reason = Literal["full", "asked", "growth", "tombstones", "first", "purged"]

GROWTH = 2.0
# Kafka's default of delete.retention.ms: how long a tombstone is kept after the log was cleaned.
TOMBSTONES_STAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class GenerationHistory:
    """The generations of a topic in the catalog: a row of the query generations.

    `last`: the highest number so far. `generation`: the chain's present one, None when the chain does not
    hold the topic. `first_bytes`, `bytes`: size of its first backup, and of all. `end_ts`: when a backup last
    read the topic's end; `longest_ms`: the longest time from such a read to the end of the run that read on.
    """

    scope: str
    epoch: str
    last: int
    generation: int | None
    first_bytes: int
    bytes: int
    end_ts: int | None
    longest_ms: int


@dataclass(frozen=True, slots=True)
class Generation:
    """The generation of a topic that a backup writes.

    `anew`: why the backup starts a new generation. None if it continues one, or if the topic is not compacted
    and the backup is the first of its chain. `safe_until` (ms): a backup that reads the topic's end by then
    misses no tombstone; None for topics that are not compacted.
    """

    number: int
    anew: Reason | None
    safe_until: int | None


class ChainEnd(Protocol):
    """What is needed of the last backup of a chain."""

    @property
    def base(self) -> str: ...
    @property
    def link(self) -> int: ...


def read_generations(
    reader: CatalogReader,
    source: str,
    last: ChainEnd | None,
    topics: Sequence[TopicState] | None = None,
) -> list[GenerationHistory]:
    """The generations of a source's topics in the catalog; the chain is the one that ends with `last`.

    `topics`: the topics to back up. Only the sizes of compacted topics matter, so the query does not read the
    rows of other topics' files.
    """
    base, link = (last.base, last.link) if last else (None, None)
    sized = None if topics is None else ",".join(t.scope for t in topics if is_compacted(t.effective))
    rows = reader.rows("generations", source=source, base=base, link=link, sized=sized)
    return [GenerationHistory(**row) for row in rows]


def is_compacted(settings: Mapping[str, str]) -> bool:
    """Whether the broker compacts a topic with these settings."""
    return "compact" in (policy.strip() for policy in settings.get("cleanup.policy", "").split(","))


def tombstones_stay_ms(settings: Mapping[str, str]) -> int:
    """How long tombstones of a topic are kept after the log was cleaned (its delete.retention.ms)."""
    return int(settings.get("delete.retention.ms", TOMBSTONES_STAY_MS))


def choose(
    topics: Sequence[TopicState],
    history_rows: Iterable[GenerationHistory],
    *,
    full: bool,
    requested: bool,
    growth: float,
    end_ts: int,
    purged: Collection[tuple[str, str]] = (),
) -> dict[tuple[str, str], Generation]:
    """The generation of each topic in a backup at `end_ts`, by (scope, epoch).

    `purged`: topics (scope, epoch) of which the source deleted the records that the chain would read next:
    they start a new one, compacted or not. Numbers count up across all chains, but a topic that is not
    compacted keeps its last number in a new chain.
    """
    histories = {(h.scope, h.epoch): h for h in history_rows}
    generations: dict[tuple[str, str], Generation] = {}
    for topic in topics:
        topic_key = topic.scope, topic.epoch
        history = histories.get(topic_key)
        present = None if full or history is None else history.generation
        last = -1 if history is None else history.last
        if not is_compacted(topic.effective) or patterns.is_internal(topic.scope):
            if topic_key in purged and present is not None:
                generations[topic_key] = Generation(last + 1, "purged", None)
            else:
                generations[topic_key] = Generation(max(last, 0) if present is None else present, None, None)
            continue
        stay = tombstones_stay_ms(topic.effective)
        reason = _reason(history, full, requested, growth, end_ts, stay) or (
            "purged" if topic_key in purged else None
        )
        if history and present is not None and reason is None:
            generations[topic_key] = Generation(present, None, (history.end_ts or 0) + stay)
        else:
            generations[topic_key] = Generation(last + 1, reason or "first", end_ts + stay)
    return generations


def _reason(
    history: GenerationHistory | None, full: bool, requested: bool, growth: float, end_ts: int, stay: int
) -> Reason | None:
    if history is None:
        return "first"
    if full:
        return "full"
    if requested:
        return "asked"
    if history.generation is None or history.end_ts is None:
        return "first"
    if max(end_ts - history.end_ts, history.longest_ms) >= stay:
        return "tombstones"
    return "growth" if history.bytes > growth * history.first_bytes else None


# --- compactions


@dataclass(frozen=True, slots=True)
class CompactTopic(StoredTopic):
    """A topic to compact: the generation to write, and the restore point (`backup_id`, `end_ts`) to read.

    Tombstones with a timestamp before `drop_before` (ms) are dropped. `doubtful`: the backups may lack a
    tombstone.
    """

    backup_id: str
    end_ts: int
    drop_before: int
    doubtful: bool


@dataclass(frozen=True, slots=True)
class CompactBatch:
    """Topics with the same restore point: they become one backup, which ends at one instant.

    `file`: the files to compact, as rows of selected_files.
    """

    topics: tuple[CompactTopic, ...]
    file: PlanFile = field(default=EMPTY, compare=False)

    @property
    def scopes(self) -> str:
        """The names of the topics, separated by commas, as statements take them."""
        return ",".join(topic.scope for topic in self.topics)


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """The backups that a compaction makes. `skipped_topics`: topics that are not compacted, and why."""

    batches: tuple[CompactBatch, ...]
    skipped_topics: Mapping[str, str]

    @property
    def topics(self) -> list[CompactTopic]:
        """All topics, by name."""
        return sorted((t for batch in self.batches for t in batch.topics), key=attrgetter("scope"))


def plan_compaction(
    points: Iterable[Mapping[str, Any]],
    history_rows: Iterable[GenerationHistory],
    *,
    names: Sequence[str] = (),
    expressions: Sequence[str] = (),
    all_keyed: bool = False,
) -> CompactPlan:
    """Plan a compaction, from rows of the queries compact_points and generations.

    Without `names` and `expressions` it takes all compacted topics except internal ones.

    Raises NotFound (no such topic), Refused (a named topic with records to compact does not allow it).
    """
    rows = {row["scope"]: row for row in points}
    if names or expressions:
        scopes = patterns.select(names, expressions, rows)
    else:
        scopes = sorted(scope for scope in rows if not patterns.is_internal(scope))
    histories = {(h.scope, h.epoch): h for h in history_rows}
    topics, skipped = [], {}
    for scope in scopes:
        row = rows[scope]
        reason = _skip_reason(row, all_keyed)
        # Without new records or files, a named topic is only skipped. The other two reasons are refused.
        if reason and scope in names and not row["compacted"] and row["files"]:
            raise Refused(f"Topic {scope} cannot be compacted: {reason}.", hint=_HINTS[reason])
        if reason:
            skipped[scope] = reason
        else:
            topics.append(_topic(row, histories[scope, row["epoch"]]))
    restore_point = attrgetter("end_ts", "backup_id")
    groups = groupby(sorted(topics, key=restore_point), restore_point)
    return CompactPlan(tuple(CompactBatch(tuple(group)) for _, group in groups), skipped)


_NOT_COMPACTED = "its cleanup.policy does not include compact"
_NULL_KEYS = "it has records without a key, which compaction cannot replace"
_HINTS = {
    _NOT_COMPACTED: "--all-keyed compacts it anyway: only the latest record of each key is kept.",
    _NULL_KEYS: "Leave it out.",
}


def _skip_reason(row: Mapping[str, Any], all_keyed: bool) -> str | None:
    if not (all_keyed or is_compacted(topic_settings.in_force(row["settings"]))):
        return _NOT_COMPACTED
    if row["null_keys"]:
        return _NULL_KEYS
    if row["compacted"]:
        return "it has no new records since its last compaction"
    return None if row["files"] else "its backups hold no records"


def _topic(row: Mapping[str, Any], history: GenerationHistory) -> CompactTopic:
    settings = topic_settings.in_force(row["settings"])
    stay = tombstones_stay_ms(settings)
    values = {
        **row,
        # The new backup is complete up to its `end_ts`: no open transaction hides a record of it.
        "complete_ts": None,
        "generation": history.last + 1,
        "drop_before": row["end_ts"] - stay,
        "doubtful": is_compacted(settings) and history.longest_ms >= stay,
    }
    return pick(CompactTopic, values)
