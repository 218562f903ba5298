"""`lakebackup log start`: begin a log task."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, settings, size, span
from lakebackup_jobs.cli.log import told

EXAMPLES = options.examples(
    "lakebackup log start prod --source kafka://localhost:9092 --topic tikv-changes --to ./backups",
    "lakebackup log start shop --source kafka://localhost:9092 --feed debezium --topic shop --to s3://b/log "
    "-f 'public.*' -f '!public.tmp_*' --flush-every 1min --encrypt",
)
_SCHEME = "kafka://"


def start(
    name: told.Name,
    source: Annotated[
        str | None, typer.Option("--source", metavar="kafka://HOST:PORT,…", help="The feed's brokers.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="REGEX", help="Topics of the feed whose whole name matches; repeatable."
        ),
    ] = None,
    feed: Annotated[
        Literal["br", "debezium"], typer.Option(help="What the events are: docs/change-logs.md.")
    ] = "br",
    to: options.KeepAt = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--filter",
            metavar="RULE",
            help="Tables as db.name, with * and ?; !… leaves out; the last that fits decides; repeatable.",
        ),
    ] = None,
    lastbackupts: Annotated[
        int | None,
        typer.Option(
            "--lastbackupts", min=0, metavar="TS", help="What was committed up to then is not captured."
        ),
    ] = None,
    endts: Annotated[
        int | None, typer.Option("--endts", min=0, metavar="TS", help="The task is complete then.")
    ] = None,
    flush_every: Annotated[
        str, typer.Option("--flush-every", metavar="SPAN", help="How old what is not stored may become.")
    ] = "5min",
    flush_bytes: Annotated[
        str, typer.Option("--flush-bytes", metavar="SIZE", help="Flush when about so much waits.")
    ] = "128MiB",
    codec: Annotated[Literal["zstd", "lz4", "none"], typer.Option(help="Of log files.")] = "zstd",
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Encrypt log files with the current key of \\[log] keys_file.")
    ] = False,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Go on where the feed lost events before they were read.")
    ] = False,
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
    """Begin to capture a change feed, or go on with a task that was stopped; its job is started here.

    It goes on when this command has ended, and prints into a file that is named. One that ended by itself is
    started again by the same command.
    """
    found = settings(
        config,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        spark_conf=spark_conf or (),
        destination=to,
        catalog=catalog,
        lease_ttl=lease_ttl,
        master=master,
    )
    where = destination(found, "--to")
    bootstrap = (source or "").removeprefix(_SCHEME) or found.kafka.get("bootstrap.servers", "")
    if not bootstrap or (source and not source.startswith(_SCHEME)):
        raise UsageProblem("Nobody said where the feed is.", hint="Give --source kafka://HOST:PORT.")
    if not topic:
        raise UsageProblem("Nobody said in which topics the feed is.", hint="Give --topic NAME.")
    from lakebackup.store import CatalogWriter
    from lakebackup_jobs.changelog import control
    from lakebackup_jobs.changelog.task import TaskSettings

    wanted = TaskSettings(
        feed=feed,
        bootstrap=bootstrap,
        topics=tuple(topic),
        filters=tuple(filter_ or ()),
        lastbackupts=lastbackupts,
        endts=endts,
        flush_every_s=(span(flush_every) or 1) / 1000,
        flush_bytes=size("--flush-bytes", flush_bytes) or 1,
        codec=codec,
        encrypt=encrypt,
        allow_gaps=allow_gaps,
    )
    CatalogWriter.open(None, where, found.catalog).migrate()
    more = told.job_flags(
        kafka_property, spark_conf, master=master, metrics_port=metrics_port, lease_ttl=lease_ttl
    )
    place = told.place_of(found, where, config=config, kafka_config=kafka_config, run=not no_run, more=more)
    newest = place.reader().one("log_newest", source=name)
    first = newest["end_ts"] if newest else lastbackupts
    begins = "what the feed has" if first is None else f"ts={first}"

    def ended(found: Any) -> str:
        if found["detail"]:
            return f"Started, and paused itself: {found['detail']}"
        return "Started!" + (f" Its log: {found['log']}" if found["log"] else "")

    told.told(
        f"Starting task {name} from {begins}...", json, lambda: control.start(place, name, wanted), ended
    )
