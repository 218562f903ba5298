"""The result of a restore for one partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionOutcome:
    """What was restored of one partition. `position` is the source position up to which it was restored."""

    scope: str
    region: str
    entries: int
    bytes: int
    position: int
