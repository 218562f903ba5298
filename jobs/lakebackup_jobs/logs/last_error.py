"""What is wrong with the job of a log task right now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Trouble:
    """What keeps a job from its work, known here even while the catalog cannot be written; None: nothing."""

    text: str | None = None
