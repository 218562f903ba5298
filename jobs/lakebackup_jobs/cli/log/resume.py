"""`lakebackup log resume`: a log task that was paused goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, settings
from lakebackup_jobs.cli.log import told

EXAMPLES = options.examples("lakebackup log resume prod --from ./backups")


def resume(
    name: told.Name,
    from_: options.BackupsAt = None,
    no_run: told.NoRun = False,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", metavar="PORT", help="The job serves Prometheus there.")
    ] = None,
    kafka_config: options.KafkaConfig = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    master: options.Master = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Go on where the task was paused, or paused itself; what has come in since is captured as one batch.

    When its job is not there any more, one is started on this machine.
    """
    found = settings(config, kafka_config=kafka_config, destination=from_, catalog=catalog, master=master)
    where = destination(found, "--from")
    from lakebackup_jobs.changelog import control

    flags = {"master": master, "metrics-port": metrics_port}
    more = [part for flag, value in flags.items() if value is not None for part in (f"--{flag}", str(value))]
    place = told.place_of(found, where, config=config, kafka_config=kafka_config, run=not no_run, more=more)
    told.told(
        f"Resuming task {name}...",
        json,
        lambda: control.resume(place, name),
        lambda now: "Resumed!" + (f" Its log: {now['log']}" if now["log"] else ""),
    )
