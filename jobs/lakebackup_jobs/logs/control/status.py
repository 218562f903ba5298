"""The status of log tasks: what they are to do, whether a job runs, the progress of each store. No Java."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lakebackup.errors import Damaged, LakebackupError
from lakebackup.plan.logs.flush import physical_ms
from lakebackup.rules.times import format_ts
from lakebackup.storage import Storage
from lakebackup.store.reader import Catalog, CatalogReader
from lakebackup_jobs.logs import task
from lakebackup_jobs.logs.capture.flush import LogRequest, Planner
from lakebackup_jobs.logs.task import Task

COMPLETED_OR_MISSING = "task completed or not found"


def status_of(reader: CatalogReader, storage: Storage, row: Mapping[str, Any]) -> dict[str, Any]:
    """The status of one task, with the columns of `row`, which is a row of log_status.

    It adds whether a job is at work, `checkpoint_lag_s` and the task's `stores`.
    """
    try:
        settings: dict[str, Any] = asdict(task.settings_of(row["settings"]))
        detail = row["detail"]
    except Damaged as error:  # A row that cannot be read must not hide the others.
        settings, detail = {"feed": None, "topics": [], "filters": []}, error.message
    status: dict[str, Any] = {
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
    if status["checkpoint_ts"] is not None:
        ms = physical_ms(status["checkpoint_ts"], row["ts_domain"])
        status["checkpoint_time"] = format_ts(ms)
        status["checkpoint_lag_s"] = round(max(0.0, time.time() - ms / 1000), 3)
    error_text = problem(status)
    status["stores"] = [
        {
            "store": store["store"],
            "ok": error_text is None,
            "next_backup_ts": store["next_backup_ts"],
            "error": error_text,
        }
        for store in reader.rows("log_stores", source=row["source"])
    ]
    return status


def problem(status: Mapping[str, Any]) -> str | None:
    """What is wrong with all stores of a task, by the task's status; None when nothing is."""
    if status["state"] in ("stopped", "complete"):
        return COMPLETED_OR_MISSING
    if status["detail"]:
        return f"task paused itself: {str(status['detail']).splitlines()[0]}"
    if not status["at_work"]:
        return "no job of the task is at work"
    return None


def statuses(reader: CatalogReader, storage: Storage, name: str | None = None) -> list[dict[str, Any]]:
    """The status of every task, or of the one called `name`. Raises NotFound for an unknown name."""
    if name is not None:
        task.require(reader, name)
    return [status_of(reader, storage, row) for row in reader.rows("log_status", source=name)]


def waiting(
    destination: str, catalog: str | None, log_task: Task, kafka: Mapping[str, str]
) -> dict[str, int] | None:
    """The number of events of each topic that are not flushed.

    None: Kafka cannot be read from here, or this machine did not approve the task.
    """
    uri = Catalog(destination, catalog).catalog_uri
    try:
        client = task.client_of(uri, log_task.name, log_task.settings, kafka)
        request = LogRequest(destination, log_task.name, log_task.settings, client, catalog=catalog)
        return Planner(request).waits_by_topic()
    except LakebackupError:
        return None


def lines(status: Mapping[str, Any]) -> list[str]:
    """A line for each store, in the form of TiDB's log backup."""
    return [
        f"Store {store['store']}: ok (next_backup_ts ={store['next_backup_ts']})."
        if store["ok"]
        else f"Store {store['store']}: error, {store['error']}."
        for store in status["stores"]
    ]
