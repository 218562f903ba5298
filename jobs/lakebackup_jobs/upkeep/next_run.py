"""What the command `due` shows beside the due runs: the next run, and the backups that no schedule counts."""

from __future__ import annotations

from shlex import quote
from typing import Any

from lakebackup.rules.times import format_ts
from lakebackup.store.reader import CatalogReader


def next_run(reader: CatalogReader, source: str | None, now_ms: int) -> dict[str, Any] | None:
    """Return the first run that is due after `now_ms` (ms), of a source or (None) of all.

    The row has the source, the kind of run, `due_ts` and `now_ts`. None if no run is due after `now_ms`: no
    policy schedules one, or all are due already.
    """
    runs = [
        row
        for row in reader.rows("policy_runs", source=source)
        if row["due_ts"] is not None and row["due_ts"] > now_ms
    ]
    if not runs:
        return None
    first = min(runs, key=lambda row: row["due_ts"])
    run = "full" if first["run"] == "incremental" and first["backup_id"] is None else first["run"]
    return {"source": first["source"], "run": run, "due_ts": first["due_ts"], "now_ts": now_ms}


def from_future(reader: CatalogReader, source: str | None) -> list[str]:
    """Return a warning for each backup from the future, of a source or (None) of all: no schedule counts
    it."""
    return [
        f"backup {row['backup_id']} of {row['source']} is from the future, it ends at "
        f"{format_ts(row['end_ms'])}: a clock was wrong, and no schedule counts it. Delete it: "
        f"lakebackup prune --source {quote(row['source'])} --future"
        for row in reader.rows("future_of_source", source=source)
    ]
