"""`lakebackup log status`: the state of log tasks."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from lakebackup.errors import Incomplete, NotFound
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.lifecycle.progress import event_line, human_bytes
from lakebackup_jobs.logs.control.status import lines, statuses, waiting
from lakebackup_jobs.logs.task import require


@verb(options.REPO, options.KAFKA_CONFIG)
def status(
    call: Call, name: str | None = argument("NAME", "Only this task.", autocompletion=completion.sources)
) -> None:
    """Show each task's state, whether its job is running, each store's checkpoint, and errors.

    Examples:
        lakebackup log status --repo ./backups
        lakebackup log status prod --repo ./backups --json
    """
    repo, settings = call.repository, call.settings
    reader = CatalogReader.require(repo, settings.catalog)
    if name and not call.json:
        common.line(f"Checking status of {name}...\n")
    tasks = statuses(reader, open_storage(repo), name)
    if not tasks and not call.json:
        raise NotFound("There is no log task.", hint="`lakebackup log start` creates one.")
    for task in tasks:
        task["waiting"] = waiting(repo, settings.catalog, require(reader, task["task"]), dict(settings.kafka))
        if call.json:
            common.line(event_line("result", task))
            continue
        if not name:
            common.line(f"{task['task']}:")
        common.stores("\n".join(lines(task)))
        common.line(_summary(task))
    failed = [
        task["task"]
        for task in tasks
        if task["state"] in ("running", "paused") and any(not s["ok"] for s in task["stores"])
    ]
    if failed:
        raise Incomplete(
            f"Stores of {', '.join(failed)} are in error.",
            hint=f"See: lakebackup log resume {quote(failed[0])}",
        )


def _summary(task: Mapping[str, Any]) -> str:
    job = "a job is at work" if task["at_work"] else "no job is at work"
    parts = [f"{task['state']}, {job}" if task["state"] in ("running", "paused") else task["state"]]
    if task["detail"]:
        parts.append(str(task["detail"]))
    if task["checkpoint_ts"] is not None:
        ago = f"{task['checkpoint_lag_s']:.1f} s ago"
        parts.append(f"checkpoint {task['checkpoint_ts']} ({task['checkpoint_time']}), {ago}")
    size = human_bytes(task["bytes"])
    parts.append(f"{task['flushes']} flushes, {task['files']} files, {size}, {task['entries']} records")
    if task["waiting"] is not None:
        parts.append(f"{sum(task['waiting'].values())} events wait")
    return "\n".join(parts)
