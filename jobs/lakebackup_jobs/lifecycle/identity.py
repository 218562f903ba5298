"""Who runs this, and when, as rows of the catalog tell it."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


def holder() -> str:
    """`user@host:pid` of this process."""
    try:
        return f"{getpass.getuser()}@{os.uname().nodename}:{os.getpid()}"
    except (KeyError, OSError):
        return f"pid {os.getpid()}"


def micros(instant: datetime) -> int:
    """Microseconds since 1970 UTC."""
    return int(instant.timestamp() * 1_000_000)
