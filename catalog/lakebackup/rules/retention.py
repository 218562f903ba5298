"""How long records are kept, by a topic's settings in force or by flags. Pure.

A topic promises the records of the last `retention.ms`, or `retention.bytes` of each partition, whichever is
less. Backups keep whole files, and one expires only when it holds nothing of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Files roll at this part of the retention, so that a record outlives it by no more than that.
ROLL_PART = 10


@dataclass(frozen=True, slots=True)
class History:
    """One topic (one epoch of it) as its newest restore point has it.

    `settings`: those in force. `covered_to` in ms; `present`: the newest backup of the source holds it.
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
    """What a person asks to keep in place of a topic's own settings: ms, and bytes of each partition."""

    keep_ms: int | None = None
    keep_bytes: int | None = None


#: The topic's settings decide.
AS_SET = Limits()


@dataclass(frozen=True, slots=True)
class Rule:
    """What expires of one topic: files whose records are all older than `cutoff_ts` (ms); those before the
    newest `keep_bytes` of each partition; generations before `generation` when it is compacted.

    None: nothing expires for that reason.
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
        """Whether nothing can expire by it."""
        return self.cutoff_ts is None and self.keep_bytes is None and not self.compacted


def rule(history: History, limits: Limits = AS_SET, *, now: int) -> Rule:
    """The rule for a topic; `limits` override the topic's settings. `now` in ms.

    Time is counted back from the topic's newest backup: where backups have stopped, nothing more expires. A
    topic that is only compacted loses nothing by time or size, since an old record may be a key's latest.
    """
    deletes = "delete" in _policies(history.settings)
    its_ms, its_bytes = (_limit(history.settings, f"retention.{unit}") for unit in ("ms", "bytes"))
    span = its_ms if limits.keep_ms is None else limits.keep_ms
    size = its_bytes if limits.keep_bytes is None else limits.keep_bytes
    names = ("source", "scope", "epoch", "base", "link", "generation")
    topic: dict[str, Any] = {name: getattr(history, name) for name in names}
    return Rule(
        **topic,
        compacted="compact" in _policies(history.settings),
        cutoff_ts=min(now, history.covered_to) - span if deletes and span is not None else None,
        keep_bytes=size if deletes else None,
    )


def roll_ms(settings: Mapping[str, str], asked: int | None) -> int | None:
    """The ms after which a topic's data file is closed, None: never. `asked`: by flag, 0 for never; None
    takes a tenth of the retention in force."""
    if asked is not None:
        return asked or None
    keep = _limit(settings, "retention.ms")
    return max(1, keep // ROLL_PART) if keep is not None and "delete" in _policies(settings) else None


def limits_passed(settings: Mapping[str, str], *, age_ms: int, size: int) -> dict[str, int]:
    """The limits in force that a partition of `size` bytes and that age already exceeds: name -> limit."""
    if "delete" not in _policies(settings):
        return {}
    found = {"retention.ms": age_ms, "retention.bytes": size}
    limits = {name: _limit(settings, name) for name in found}
    return {name: limit for name, limit in limits.items() if limit is not None and limit < found[name]}


def _policies(settings: Mapping[str, str]) -> set[str]:
    return {policy.strip() for policy in settings.get("cleanup.policy", "delete").split(",")}


def _limit(settings: Mapping[str, str], name: str) -> int | None:
    """A limit of Kafka's, where -1 (or no value) is none."""
    try:
        value = int(settings.get(name, "-1"))
    except ValueError:
        return None
    return value if value >= 0 else None
