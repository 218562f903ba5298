"""What a restore did of one partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionOutcome:
    """What a restore brought back of one partition; `position` is the source position reached."""

    scope: str
    region: str
    entries: int
    bytes: int
    position: int
