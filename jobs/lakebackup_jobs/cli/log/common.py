"""Common flags and output of the log verbs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from lakebackup_jobs.cli.flags import completion
from lakebackup_jobs.cli.flags.options import PORTS, argument, option, switch
from lakebackup_jobs.cli.verb import Call
from lakebackup_jobs.lifecycle.progress import event_line
from lakebackup_jobs.logs.control.status import lines
from lakebackup_jobs.logs.control.verbs import Failed, LogTasks
from lakebackup_jobs.runtime.terminal_text import visible_lines

NAME = argument("NAME", "The task.", ..., autocompletion=completion.sources)
NO_RUN = switch("--no-run", "Do not start the job here; run `lakebackup log run` elsewhere.")
METRICS_PORT = option("--metrics-port PORT", "Serve Prometheus metrics on this port.", **PORTS)


def place_of(call: Call, *, run: bool = False, metrics_port: int | None = None) -> LogTasks:
    """How this machine reaches the log tasks of the repository.

    `run`: a job may start on this machine. It gets this command's flags.
    """
    settings = call.settings
    # `launch` adds the destination; the job's output goes to its log file.
    options = call.shared_arguments("repo", "catalog", "bootstrap_server", "json", "wide", "debug")
    options += [] if metrics_port is None else ["--metrics-port", str(metrics_port)]
    return LogTasks(
        call.repository,
        settings.catalog,
        dict(settings.kafka),
        options if run else None,
        settings.log.keys_file,
        settings.encryption.has_recipients,
    )


def line(text: str) -> None:
    """Print a line on standard output."""
    sys.stdout.write(f"{visible_lines(text)}\n")
    sys.stdout.flush()


def progress(
    message: str,
    as_json: bool,
    work: Callable[[], dict[str, Any]],
    outcome_text: Callable[[Mapping[str, Any]], str],
) -> None:
    """Do the work, and print `message`, a line for each store, and the text of `outcome_text`.

    With `as_json`, prints the result as one JSON object instead. When the work raises Failed, prints the
    error's stores and raises it again.
    """
    if not as_json:
        line(f"{message}\n")
    try:
        status = work()
    except Failed as error:
        if not as_json:
            stores("\n".join(lines(error.status)))
        raise
    if as_json:
        line(event_line("result", status))
        return
    stores("\n".join(lines(status)))
    line(outcome_text(status))


def stores(text: str) -> None:
    """Print the lines of the stores, and an empty line."""
    if text:
        line(f"{text}\n")
