"""What `due` says beside the runs that are due: the next run, and the backups that no schedule counts."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from lakebackup.rules.times import format_ts

if TYPE_CHECKING:
    from lakebackup.store.reader import CatalogReader


def next_run(reader: CatalogReader, source: str | None, now: int) -> dict[str, Any] | None:
    """The run that is due first after `now` (ms), of a source or of all: its source, its kind, `due_ts` and
    `now_ts`; None where no policy schedules one."""
    coming = [
        row
        for row in reader.rows("policy_runs", source=source)
        if row["due_ts"] is not None and row["due_ts"] > now
    ]
    if not coming:
        return None
    first = min(coming, key=lambda row: row["due_ts"])
    run = "full" if first["run"] == "incremental" and first["backup_id"] is None else first["run"]
    return {"source": first["source"], "run": run, "due_ts": first["due_ts"], "now_ts": now}


def from_future(reader: CatalogReader, source: str | None) -> list[str]:
    """A warning for each backup from the future, of a source or of all: no schedule counts it."""
    return [
        f"backup {row['backup_id']} of {row['source']} is from the future, it ends at "
        f"{format_ts(row['end_ms'])}: a clock was wrong, and no schedule counts it. Delete it: "
        f"lakebackup prune --source {quote(row['source'])} --future"
        for row in reader.rows("future_of_source", source=source)
    ]
