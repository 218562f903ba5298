"""The digest of a backup: a sum over its rows that does not depend on their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

LANES = 4
LANE_DIGITS = 15


class Digest:
    """A digest of a set of text lines. It does not depend on their order, and SQL can compute it too.

    The first 60 hex digits of each line's SHA-256 are four numbers of 15 digits. Each of them is summed over
    all lines, modulo 16**15. Digests of parts of a set can be added. The digest shows damage and mistakes; it
    is no signature.
    """

    def __init__(self) -> None:
        self._lanes = [0] * LANES

    def add(self, line: str) -> None:
        """Add a line, without its line break."""
        digits = hashlib.sha256(line.encode()).hexdigest()
        self.add_lanes(
            int(digits[lane * LANE_DIGITS : (lane + 1) * LANE_DIGITS], 16) for lane in range(LANES)
        )

    def add_lanes(self, sums: Iterable[int]) -> None:
        """Add the sums of other lines, one number per lane."""
        self._lanes = [
            (current + added) % 16**LANE_DIGITS for current, added in zip(self._lanes, sums, strict=True)
        ]

    @property
    def lanes(self) -> tuple[int, ...]:
        """The sums so far, one number per lane. A Spark task sends them to the driver, which adds them up."""
        return tuple(self._lanes)

    def hex(self) -> str:
        """The digest as 60 lower hex digits."""
        return "".join(f"{lane:0{LANE_DIGITS}x}" for lane in self._lanes)
