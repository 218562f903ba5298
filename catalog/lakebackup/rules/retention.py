"""Decide how long backups keep a topic's records, by the topic's settings in force or by flags. Without I/O.

A topic promises the records of the last `retention.ms`, or the last `retention.bytes` of each partition,
whichever is less. Backups delete whole files, so a file expires only when none of its records is promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: A data file is closed after this fraction of the retention (1/10), so a record outlives it by no more.
ROLL_PART = 10


@dataclass(frozen=True, slots=True)
class History:
    """One epoch of a topic at its newest restore point.

    `settings` are those in force. `covered_to` is in ms. `present`: the source's newest backup has the topic.
    """

    source: str
    scope: str
    epoch: str
    base: str
    link: int
    generation: int
    settings: Mapping[str, str]
    covered_to: int
    present: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that a person sets instead of a topic's own: ms, and bytes of each partition."""

    keep_ms: int | None = None
    keep_bytes: int | None = None


#: No limits of a person: the topic's settings decide.
AS_SET = Limits()


@dataclass(frozen=True, slots=True)
class Rule:
    """What expires of one topic: files whose records are all older than `cutoff_ts` (ms), files before the
    newest `keep_bytes` of each partition, and generations before `generation` if the topic is compacted.

    If a limit is None, nothing expires for that reason.
    """

    source: str
    scope: str
    epoch: str
    base: str
    link: int
    generation: int
    compacted: bool
    cutoff_ts: int | None
    keep_bytes: int | None

    @property
    def idle(self) -> bool:
        """Whether nothing can expire by this rule."""
        return self.cutoff_ts is None and self.keep_bytes is None and not self.compacted


def rule(history: History, limits: Limits = AS_SET, *, now_ms: int) -> Rule:
    """The rule for a topic. `limits` override the topic's settings; `now_ms` is in ms.

    Time counts back from the topic's newest backup, so that nothing more expires when backups have stopped. A
    topic that is only compacted loses nothing by time or size, since an old record may be a key's latest.
    """
    deletes = "delete" in _policies(history.settings)
    topic_ms, topic_bytes = (_limit(history.settings, f"retention.{unit}") for unit in ("ms", "bytes"))
    keep_ms = topic_ms if limits.keep_ms is None else limits.keep_ms
    keep_bytes = topic_bytes if limits.keep_bytes is None else limits.keep_bytes
    field_names = ("source", "scope", "epoch", "base", "link", "generation")
    topic_fields: dict[str, Any] = {name: getattr(history, name) for name in field_names}
    return Rule(
        **topic_fields,
        compacted="compact" in _policies(history.settings),
        cutoff_ts=min(now_ms, history.covered_to) - keep_ms if deletes and keep_ms is not None else None,
        keep_bytes=keep_bytes if deletes else None,
    )


def roll_ms(settings: Mapping[str, str], flag_ms: int | None) -> int | None:
    """The ms after which a data file of a topic is closed; None means never.

    `flag_ms` is the value of a flag, where 0 means never. Without it, the result is a tenth of the retention.
    """
    if flag_ms is not None:
        return flag_ms or None
    retention_ms = _limit(settings, "retention.ms")
    return (
        max(1, retention_ms // ROLL_PART)
        if retention_ms is not None and "delete" in _policies(settings)
        else None
    )


def limits_passed(settings: Mapping[str, str], *, age_ms: int, size: int) -> dict[str, int]:
    """The limits in force that a partition of this age and size (bytes) exceeds: name -> limit."""
    if "delete" not in _policies(settings):
        return {}
    sizes = {"retention.ms": age_ms, "retention.bytes": size}
    limits = {name: _limit(settings, name) for name in sizes}
    return {name: limit for name, limit in limits.items() if limit is not None and limit < sizes[name]}


def _policies(settings: Mapping[str, str]) -> set[str]:
    return {policy.strip() for policy in settings.get("cleanup.policy", "delete").split(",")}


def _limit(settings: Mapping[str, str], name: str) -> int | None:
    """A limit in a topic's settings. None for -1, and for no number at all, both of which mean no limit."""
    try:
        value = int(settings.get(name, "-1"))
    except ValueError:
        return None
    return value if value >= 0 else None
