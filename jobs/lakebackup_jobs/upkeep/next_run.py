"""The next run that a policy schedules, for a person who asks while nothing is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
