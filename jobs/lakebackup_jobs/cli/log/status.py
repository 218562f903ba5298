"""`lakebackup log status`: how log tasks are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument
from lakebackup_jobs.cli.log import shown
from lakebackup_jobs.cli.verb import Call, verb

if TYPE_CHECKING:
    from collections.abc import Mapping


@verb(options.FROM, options.KAFKA_CONFIG)
def status(call: Call, name: str | None = argument("NAME", "One task alone.")) -> None:
    """Show what tasks are to do, whether a job is at work, how far each store is, what went wrong.

    Examples:
        lakebackup log status --from ./backups
        lakebackup log status prod --from ./backups --json
    """
    where, found = call.where, call.settings
    from lakebackup.errors import Incomplete, NotFound
    from lakebackup.storage import open_storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.logs.control.status import lines, statuses, waiting
    from lakebackup_jobs.logs.task import require

    reader = CatalogReader.require(where, found.catalog)
    if name and not call.json:
        shown.line(f"Checking status of {name}...\n")
    tasks = statuses(reader, open_storage(where), name)
    if not tasks and not call.json:
        raise NotFound("There is no log task.", hint="`lakebackup log start` creates one.")
    for one in tasks:
        one["waiting"] = waiting(where, found.catalog, require(reader, one["task"]), dict(found.kafka))
        if call.json:
            shown.line(json.dumps({"event": "result", **one}, default=str))
            continue
        if not name:
            shown.line(f"{one['task']}:")
        shown.stores("\n".join(lines(one)))
        shown.line(_summary(one))
    failed = [
        one["task"]
        for one in tasks
        if one["state"] in ("running", "paused") and any(not s["ok"] for s in one["stores"])
    ]
    if failed:
        raise Incomplete(
            f"Stores of {', '.join(failed)} are in error.", hint=f"See: lakebackup log resume {failed[0]}"
        )


def _summary(one: Mapping[str, Any]) -> str:
    from lakebackup_jobs.lifecycle.progress import human_bytes

    job = "a job is at work" if one["at_work"] else "no job is at work"
    said = [f"{one['state']}, {job}" if one["state"] in ("running", "paused") else one["state"]]
    if one["detail"]:
        said.append(str(one["detail"]))
    if one["checkpoint_ts"] is not None:
        ago = f"{one['checkpoint_lag_s']:.1f} s ago"
        said.append(f"checkpoint {one['checkpoint_ts']} ({one['checkpoint_time']}), {ago}")
    size = human_bytes(one["bytes"])
    said.append(f"{one['flushes']} flushes, {one['files']} files, {size}, {one['entries']} records")
    if one["waiting"] is not None:
        said.append(f"{sum(one['waiting'].values())} events wait")
    return "\n".join(said)
