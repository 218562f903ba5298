"""What the verbs of log tasks print, and their common flags."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.runtime.terminal_text import visible_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebackup_jobs.cli.verb import Call
    from lakebackup_jobs.logs.control.verbs import Place

NAME = argument("NAME", "The task.", ...)
NO_RUN = switch("--no-run", "Start no job here: it runs by `lakebackup log run` elsewhere.")
METRICS_PORT = option("--metrics-port PORT", "The job serves Prometheus there.")


def place_of(call: Call, *, run: bool = False, metrics_port: int | None = None) -> Place:
    """Where tasks are kept. `run`: a job may be started here; it gets the flags that this command has."""
    from lakebackup_jobs.logs.control.verbs import Place

    found = call.settings
    # `launch` names the place; what a job prints is its log.
    options = call.passed_on("from_", "to", "catalog", "json", "debug")
    options += [] if metrics_port is None else ["--metrics-port", str(metrics_port)]
    return Place(call.where, found.catalog, dict(found.kafka), options if run else None, found.log.keys_file)


def line(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(f"{visible_lines(text)}\n")
    sys.stdout.flush()


def progress(
    doing: str, as_json: bool, work: Callable[[], dict[str, Any]], ended: Callable[[Mapping[str, Any]], str]
) -> None:
    """Show what is done, a line a store, and how it ended; or all of it as one JSON object.

    Failed goes up once its stores are shown.
    """
    from lakebackup_jobs.logs.control.status import lines
    from lakebackup_jobs.logs.control.verbs import Failed

    if not as_json:
        line(f"{doing}\n")
    try:
        found = work()
    except Failed as error:
        if not as_json:
            stores("\n".join(lines(error.found)))
        raise
    if as_json:
        line(json.dumps({"event": "result", **found}, default=str))
        return
    stores("\n".join(lines(found)))
    line(ended(found))


def stores(text: str) -> None:
    """The lines of the stores, and an empty one."""
    if text:
        line(f"{text}\n")
