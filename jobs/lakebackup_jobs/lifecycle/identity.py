"""Who runs a command, and when, as rows of the catalog record it."""

from __future__ import annotations

import getpass
import json
import os
import time
from datetime import datetime
from typing import Any

from lakebackup.rows.upkeep import Audit


def holder() -> str:
    """`user@host:pid` of this process."""
    try:
        return f"{getpass.getuser()}@{os.uname().nodename}:{os.getpid()}"
    except (KeyError, OSError):
        return f"pid {os.getpid()}"


def origin(request: object) -> dict[str, Any]:
    """Return what a request reads from, as JSON values: its servers, topics, patterns and paths, if it has
    any."""
    servers = getattr(request, "kafka", {}).get("bootstrap.servers")
    names_by_kind = {name: getattr(request, name, None) for name in ("topics", "patterns", "paths")}
    inputs = {name: sorted(map(str, value)) for name, value in names_by_kind.items() if value}
    return {"servers": servers, **inputs} if servers else inputs


def micros(instant: datetime) -> int:
    """An instant in microseconds since 1970 UTC."""
    return int(instant.timestamp() * 1_000_000)


def audit_entry(
    action: str, subject: str, detail: object, *, time_us: int | None = None, outcome: str | None = None
) -> Audit:
    """Return an entry of the audit log for an action of this process, at `time_us` (us since 1970 UTC) or
    now."""
    return Audit(
        at=time.time_ns() // 1000 if time_us is None else time_us,
        actor=holder(),
        action=action,
        subject=subject,
        detail=json.dumps(detail),
        outcome=outcome,
    )
