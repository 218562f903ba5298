"""Who runs this, and when, as rows of the catalog have it."""

from __future__ import annotations

import getpass
import json
import os
import time
from typing import TYPE_CHECKING, Any

from lakebackup.rows.upkeep import Audit

if TYPE_CHECKING:
    from datetime import datetime


def holder() -> str:
    """`user@host:pid` of this process."""
    try:
        return f"{getpass.getuser()}@{os.uname().nodename}:{os.getpid()}"
    except (KeyError, OSError):
        return f"pid {os.getpid()}"


def origin(request: object) -> dict[str, Any]:
    """Where a request reads, as JSON values: servers, topics, patterns, paths, as far as it has them."""
    servers = getattr(request, "kafka", {}).get("bootstrap.servers")
    names_by_kind = {name: getattr(request, name, None) for name in ("topics", "patterns", "paths")}
    inputs = {name: sorted(map(str, value)) for name, value in names_by_kind.items() if value}
    return {"servers": servers, **inputs} if servers else inputs


def micros(instant: datetime) -> int:
    """Microseconds since 1970 UTC."""
    return int(instant.timestamp() * 1_000_000)


def audit_entry(
    action: str, subject: str, detail: object, *, at: int | None = None, outcome: str | None = None
) -> Audit:
    """An entry of the audit log for what this process does; `at` in us since 1970 UTC, None: now."""
    return Audit(
        at=time.time_ns() // 1000 if at is None else at,
        actor=holder(),
        action=action,
        subject=subject,
        detail=json.dumps(detail),
        outcome=outcome,
    )
