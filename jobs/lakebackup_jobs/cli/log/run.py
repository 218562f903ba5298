"""`lakebackup log run`: the job of a log task."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.interrupt import stopped_by_signals
from lakebackup_jobs.cli.invocation import destination, session_of, settings
from lakebackup_jobs.cli.log import told

EXAMPLES = options.examples(
    "lakebackup log run prod --from ./backups",
    "lakebackup log run prod --from s3://bucket/log --master spark://host:7077 --metrics-port 9464",
)


def run(
    context: typer.Context,
    name: told.Name,
    from_: options.BackupsAt = None,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", metavar="PORT", help="Serve Prometheus there.")
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", metavar="ADDRESS", help="With --metrics-port, where to listen.")
    ] = "127.0.0.1",
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
    """Do what a task is to do, here, until it is stopped: what `log start` starts by itself.

    Under systemd, or with spark-submit on a cluster, run this and start the task with --no-run. Ctrl-C and
    SIGTERM let the flush at work come to its end. The task goes on when this runs again.
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
    from lakebackup.store import CatalogReader
    from lakebackup_jobs.changelog.flush import LogRequest
    from lakebackup_jobs.changelog.run import run as run_task
    from lakebackup_jobs.changelog.task import require
    from lakebackup_jobs.changelog.trouble import Trouble
    from lakebackup_jobs.progress import reporter

    known = require(CatalogReader.open(where, found.catalog), name)
    request = LogRequest(
        destination=where,
        catalog=found.catalog,
        name=name,
        settings=known.settings,
        kafka={**found.kafka, "bootstrap.servers": known.settings.bootstrap},
        keys_file=found.log.keys_file,
        scratch=found.log.scratch,
        tries=found.log.tries,
        lease_ttl_s=found.lease_ttl,
    )
    stop, trouble = threading.Event(), Trouble()
    note = "Stops after this flush; Ctrl-C again interrupts it."
    with stopped_by_signals(stop, note), reporter(as_json=json) as report, ExitStack() as beside:
        if metrics_port is not None:
            from lakebackup_jobs.changelog.metrics import LogCollector, serve

            collector = LogCollector(where, found.catalog, name, trouble)
            beside.enter_context(serve(collector, metrics_host, metrics_port))
        spark = session_of(context, found)
        report.result(run_task(request, stop=stop, spark=spark, reporter=report, trouble=trouble))
