"""Which offsets of an engine's queues the next backup reads, and on which backup it stands. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets `[start, end)` of one partition, read by one task; `rank` counts its ranges from 0.

    From `own_from` on every message is stored; before it only those of transactions that the full before has
    open, the messages in front.
    """

    scope: str
    epoch: str
    region: str
    start: int
    end: int
    own_from: int
    rank: int
