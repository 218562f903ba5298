"""`lakebackup log pause`: make a log task flush and then read nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.control import verbs as control


@verb(options.REPO)
def pause(call: Call, name: str = common.NAME) -> None:
    """Pause a task: store what it has read, and read nothing more until it is resumed.

    The feed must keep its events for that long.

    Examples:
        lakebackup log pause prod --repo ./backups
    """
    environment = common.place_of(call)
    common.progress(f"Pausing task {name}...", call.json, lambda: control.pause(environment, name), _outcome)


def _outcome(status: Mapping[str, Any]) -> str:
    ts = status["checkpoint_ts"]
    suffix = "; no checkpoint is known yet" if ts is None else f" at {ts}"
    flush_note = "" if status["at_work"] else " No job of it was at work: nothing was flushed."
    return f"Paused{suffix}.{flush_note}"
