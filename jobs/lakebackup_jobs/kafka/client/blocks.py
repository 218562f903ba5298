"""How what is read is cut into blocks and files."""

from __future__ import annotations

BLOCK_BYTES = 4 << 20
#: A range is cut by time at most so often: timestamps may be anything.
MOST_ROLLS = 100
LATEST = 2**63 - 1


class Roll:
    """When a file is closed because of time: at a record more than `span_ms` younger than its first one.

    Old records among young ones close nothing: a file whose timestamps go up spans at most `span_ms`, and
    timestamps that jump to and fro do not make a file of each record.
    """

    def __init__(self, span_ms: int | None) -> None:
        self._span_ms, self._rolls = span_ms, 0
        self.youngest = LATEST if span_ms is None else -LATEST
        self.due = False

    def over(self, ts: int) -> None:
        """A record of time `ts`, which is above `youngest`, begins another file."""
        self._rolls += 1
        self.due = True
        self.youngest = LATEST if self._rolls > MOST_ROLLS else min(LATEST, ts + (self._span_ms or 0))

    def take(self) -> bool:
        """Whether the next block opens a file; asked once for each block."""
        due, self.due = self.due, False
        return due
