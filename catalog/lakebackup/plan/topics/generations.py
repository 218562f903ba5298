"""When a compacted topic is read from its start again.

The broker drops records that newer ones of the same key replaced; a backup keeps them all. So a compacted
topic is kept in generations: each begins with the whole topic as it then is, continues with what is new, and
ends when it holds too much that the topic itself has dropped, or when it may have missed a tombstone.

A topic of any kind begins one when the source has deleted records before their backup: what comes after the
gap does not continue what is before it.

Internal topics (`__consumer_offsets`) have none: what they have dropped since is what their backups are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakebackup.rules.patterns import is_internal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakebackup.plan.partitions import TopicState

Reason = Literal["full", "asked", "growth", "tombstones", "first", "purged"]

GROWTH = 2.0
# Kafka's own default of delete.retention.ms: how long a tombstone stays after the log was cleaned.
TOMBSTONES_STAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Held:
    """What the catalog holds of a topic's generations: a row of the query generations.

    `last`: the highest number so far. `generation`: the chain's present one, None when the chain does not
    hold the topic. `end_ts`: when its end was last read; `longest_ms`: the longest time it went unread.
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
    """What a backup does with one topic.

    `anew`: why it starts a generation; None when it continues one. `safe_until`: by when (ms) it must have
    read to the end, so that no tombstone it needs can be gone; None for topics that are not compacted.
    """

    number: int
    anew: Reason | None
    safe_until: int | None


def is_compacted(settings: Mapping[str, str]) -> bool:
    """Whether a topic with these settings drops records that newer ones of the same key replaced."""
    return "compact" in (policy.strip() for policy in settings.get("cleanup.policy", "").split(","))


def tombstones_stay_ms(settings: Mapping[str, str]) -> int:
    """How long tombstones of a topic stay after the log was cleaned (its delete.retention.ms)."""
    return int(settings.get("delete.retention.ms", TOMBSTONES_STAY_MS))


def choose(
    topics: Sequence[TopicState],
    held: Iterable[Held],
    *,
    full: bool,
    asked: bool,
    growth: float,
    end_ts: int,
    purged: Collection[tuple[str, str]] = (),
) -> dict[tuple[str, str], Generation]:
    """The generation that a backup at `end_ts` gives each topic, by (scope, epoch).

    `purged`: topics (scope, epoch) of which the source deleted what the chain would have read next: they
    begin one, whether compacted or not. Numbers go up over all chains.
    """
    known = {(h.scope, h.epoch): h for h in held}
    found: dict[tuple[str, str], Generation] = {}
    for topic in topics:
        name = topic.scope, topic.epoch
        before = known.get(name)
        present = None if full or before is None else before.generation
        last = -1 if before is None else before.last
        if not is_compacted(topic.effective) or is_internal(topic.scope):
            if name in purged and present is not None:
                found[name] = Generation(last + 1, "purged", None)
            else:
                found[name] = Generation(max(last, 0) if present is None else present, None, None)
            continue
        stay = tombstones_stay_ms(topic.effective)
        reason = _reason(before, full, asked, growth, end_ts, stay) or ("purged" if name in purged else None)
        if before and present is not None and reason is None:
            found[name] = Generation(present, None, (before.end_ts or 0) + stay)
        else:
            found[name] = Generation(last + 1, reason or "first", end_ts + stay)
    return found


def _reason(
    before: Held | None, full: bool, asked: bool, growth: float, end_ts: int, stay: int
) -> Reason | None:
    if before is None:
        return "first"
    if full:
        return "full"
    if asked:
        return "asked"
    if before.generation is None or before.end_ts is None:
        return "first"
    if max(end_ts - before.end_ts, before.longest_ms) >= stay:
        return "tombstones"
    return "growth" if before.bytes > growth * before.first_bytes else None
