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
    kafka_property: options.KafkaProperty = None,
    catalog: options.Catalog = None,
    lease_ttl: options.LeaseTtl = None,
    config: options.Config = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Go on where the task was paused, or paused itself; with what has come in since.

    When its job is not there any more, one is started on this machine, with the flags of this command: those
    that `start` was given are not kept.
    """
    found = settings(
        config,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.changelog import control

    more = told.job_flags(
        kafka_property, spark_conf, master=master, metrics_port=metrics_port, lease_ttl=lease_ttl
    )
    place = told.place_of(found, where, config=config, kafka_config=kafka_config, run=not no_run, more=more)
    told.told(
        f"Resuming task {name}...",
        json,
        lambda: control.resume(place, name),
        lambda now: "Resumed!" + (f" Its log: {now['log']}" if now["log"] else ""),
    )
