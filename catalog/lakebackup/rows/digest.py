"""The digest of a backup: a sum over its rows that does not depend on their order."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LANES = 4
LANE_DIGITS = 15


class Digest:
    """A digest of a set of text lines that does not depend on their order and that SQL can compute too.

    The SHA-256 of each line is cut into four numbers of 15 hex digits; each is added up modulo 16**15.
    Sets can be added in parts. It finds damage and mistakes, it is no signature.
    """

    def __init__(self) -> None:
        self._lanes = [0] * LANES

    def add(self, line: str) -> None:
        """Take one more line (without its line break) into the digest."""
        text = hashlib.sha256(line.encode()).hexdigest()
        self.add_lanes(int(text[lane * LANE_DIGITS : (lane + 1) * LANE_DIGITS], 16) for lane in range(LANES))

    def add_lanes(self, sums: Iterable[int]) -> None:
        """Take in sums that were computed elsewhere, one number a lane."""
        self._lanes = [(old + new) % 16**LANE_DIGITS for old, new in zip(self._lanes, sums, strict=True)]

    @property
    def lanes(self) -> tuple[int, ...]:
        """The sums so far, one number a lane: what a task sends to whoever adds them up."""
        return tuple(self._lanes)

    def hex(self) -> str:
        """60 lower hex digits."""
        return "".join(f"{lane:0{LANE_DIGITS}x}" for lane in self._lanes)
