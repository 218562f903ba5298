"""What a restore did of one partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionOutcome:
    """What was restored of one partition; `position` is the source position reached."""

    scope: str
    region: str
    entries: int
    bytes: int
    position: int
