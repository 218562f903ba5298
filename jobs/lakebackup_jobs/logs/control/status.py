"""The status of log tasks: what they are to do, whether a job runs, how far each store is. No Java."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, LakebackupError
from lakebackup.plan.logs.flush import physical_ms
from lakebackup.rules.times import format_ts
from lakebackup.store.reader import Catalog
from lakebackup_jobs.logs import task
from lakebackup_jobs.logs.capture.flush import LogRequest, Planner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.logs.task import Task

GONE = "task completed or not found"


def status_of(reader: CatalogReader, storage: Storage, row: Mapping[str, Any]) -> dict[str, Any]:
    """One task: a row of log_status, whether a job is at work, `checkpoint_lag_s`, and its `stores`."""
    try:
        settings: dict[str, Any] = asdict(task.settings_of(row["settings"]))
        detail = row["detail"]
    except Damaged as error:  # one row that cannot be read must not hide the others
        settings, detail = {"feed": None, "topics": [], "filters": []}, error.message
    found: dict[str, Any] = {
        "task": row["source"],
        "state": row["state"],
        "running": row["state"] == "running",
        "at_work": task.lease_of(storage, row["source"]) is not None,
        "since_at": row["at"],
        "detail": detail,
        "feed": settings["feed"],
        "topics": settings["topics"],
        "filters": settings["filters"],
        "from_ts": row["start_ts"],
        "checkpoint_ts": row["checkpoint_ts"] if row["start_ts"] is not None else None,
        "checkpoint_time": None,
        "checkpoint_lag_s": None,
        "flushes": row["flushes"],
        "files": row["files"],
        "bytes": row["bytes"],
        "entries": row["entries"],
        "errors": row["errors"],
        "last_flush_at": row["finished_at"],
    }
    if found["checkpoint_ts"] is not None:
        ms = physical_ms(found["checkpoint_ts"], row["ts_domain"])
        found["checkpoint_time"] = format_ts(ms)
        found["checkpoint_lag_s"] = round(max(0.0, time.time() - ms / 1000), 3)
    why = problem(found)
    found["stores"] = [
        {
            "store": store["store"],
            "ok": why is None,
            "next_backup_ts": store["next_backup_ts"],
            "error": why,
        }
        for store in reader.rows("log_stores", source=row["source"])
    ]
    return found


def problem(found: Mapping[str, Any]) -> str | None:
    """What is wrong with a task as seen from its stores, None when nothing is."""
    if found["state"] in ("stopped", "complete"):
        return GONE
    if found["detail"]:
        return f"task paused itself: {str(found['detail']).splitlines()[0]}"
    if not found["at_work"]:
        return "no job of the task is at work"
    return None


def statuses(reader: CatalogReader, storage: Storage, name: str | None = None) -> list[dict[str, Any]]:
    """Every task, or the one of a name. Raises NotFound for a name that is none."""
    if name is not None:
        task.require(reader, name)
    return [status_of(reader, storage, row) for row in reader.rows("log_status", source=name)]


def waiting(
    destination: str, catalog: str | None, found: Task, kafka: Mapping[str, str]
) -> dict[str, int] | None:
    """How many events of each topic are not flushed; None: Kafka cannot be read from here, or not as a task
    that was not approved here says."""
    uri = Catalog(destination, catalog).catalog_uri
    try:
        client = task.client_of(uri, found.name, found.settings, kafka)
        request = LogRequest(destination, found.name, found.settings, client, catalog=catalog)
        return Planner(request).waits_by_topic()
    except LakebackupError:
        return None


def lines(found: Mapping[str, Any]) -> list[str]:
    """A line a store, as people who ran TiDB's backup know them."""
    return [
        f"Store {one['store']}: ok (next_backup_ts ={one['next_backup_ts']})."
        if one["ok"]
        else f"Store {one['store']}: error, {one['error']}."
        for one in found["stores"]
    ]
