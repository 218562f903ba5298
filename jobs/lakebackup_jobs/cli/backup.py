"""`lakebackup backup …`: take a backup."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.interrupt import stopped_by_signals
from lakebackup_jobs.cli.invocation import destination, kafka_client, session_of, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup.config import Settings
    from lakebackup_jobs.backup_topics import BackupRequest
    from lakebackup_jobs.progress import Reporter

app = typer.Typer(help="Take a backup.", no_args_is_help=True)


OnGap = Literal["restart", "full", "continue", "fail"]
OnFork = Literal["branch", "fail"]
Isolation = Literal["read_committed", "read_uncommitted"]
Codec = Literal["null", "deflate", "snappy", "zstandard"]
ModeName = Literal["auto", "full", "incr-diff", "incr-accu", "diff", "accu"]

# Short names.
_MODES = {"diff": "incr-diff", "accu": "incr-accu"}


@app.command(
    "topics",
    epilog=options.examples(
        "lakebackup backup topics orders payments --bootstrap-server localhost:9092 --to ./backups",
        "lakebackup backup topics --pattern 'app\\..*' --to ./backups --note 'before the upgrade'",
        "lakebackup backup topics orders --to ./backups --kafka-config client.properties --dry-run",
        "lakebackup backup topics orders --to ./backups --mode incr-accu --level 1",
    ),
)
def topics(
    context: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Topics by name.")] = None,
    pattern: options.Pattern = None,
    to: options.KeepAt = None,
    mode: Annotated[
        ModeName | None,
        typer.Option(
            metavar="MODE",
            help="full: everything. incr-diff: what is new since the latest backup of its level or below. "
            "incr-accu: since the latest of a level below. auto: incr-diff. The first is always a full.",
            show_default="auto",
        ),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Level of an incremental backup; a full is level 0.", show_default="1"
        ),
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option(metavar="BACKUP", help="The backup to go on from, by the beginning of its id."),
    ] = None,
    on_gap: Annotated[
        OnGap,
        typer.Option(
            help="When records were gone before they were backed up: read their topic from its start again, "
            "take a full of all, go on, stop."
        ),
    ] = "restart",
    on_fork: Annotated[
        OnFork,
        typer.Option(
            help="When the source's history was cut back behind what was backed up: go on from the last "
            "backup that holds none of what was cut and put those behind it out of sync, or stop."
        ),
    ] = "branch",
    new_generation: Annotated[
        bool,
        typer.Option(
            "--new-generation",
            help="Read compacted topics from their start again, without what they have dropped since.",
        ),
    ] = False,
    groups: Annotated[
        Literal["all", "none"] | None,
        typer.Option(
            metavar="all|none",
            help="Save what consumer groups have committed too, and the topic __consumer_offsets.",
            show_default="all",
        ),
    ] = None,
    isolation: Annotated[
        Isolation | None,
        typer.Option(
            metavar="LEVEL",
            help="read_committed, or read_uncommitted: records of open and aborted transactions too.",
            show_default="read_committed",
        ),
    ] = None,
    codec: Annotated[
        Codec | None,
        typer.Option(metavar="CODEC", help="null, deflate, snappy or zstandard.", show_default="zstandard"),
    ] = None,
    compression_level: Annotated[
        int | None, typer.Option(metavar="N", help="Of the codec.", show_default="the codec's")
    ] = None,
    target_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Close a data file at this size.", show_default="128MiB"),
    ] = None,
    roll: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Close a data file when its records span this long: 6h; never.",
            show_default="a tenth of the topic's retention.ms",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Do not end: back up what is new, again and again, until stopped."),
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="With --follow, how often to look.")
    ] = "10s",
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept with the backup.")] = None,
    dry_run: options.DryRun = False,
    explain: options.Explain = False,
    bootstrap_servers: options.BootstrapServers = None,
    kafka_config: options.KafkaConfig = None,
    kafka_property: options.KafkaProperty = None,
    catalog: options.Catalog = None,
    source: options.Source = None,
    lease_ttl: options.LeaseTtl = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Back up Kafka topics: the first time all of each, from then on what is new.

    Ends where the topics end when it starts, so a busy producer cannot keep it going. With --follow it
    goes on until Ctrl-C or SIGTERM, which let the batch at work come to its end. Each batch is a backup.
    """
    if follow and (dry_run or explain):
        raise UsageProblem(f"--follow and --{'explain' if explain else 'dry-run'} exclude each other.")
    found = settings(
        config,
        bootstrap_servers=bootstrap_servers,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        spark_conf=spark_conf or (),
        destination=to,
        catalog=catalog,
        source=source,
        groups=groups,
        isolation=isolation,
        codec=codec,
        compression_level=compression_level,
        mode=_MODES.get(mode or "", mode),
        level=level,
        target_size=target_size,
        roll=roll,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where, client = destination(found, "--to"), kafka_client(found)
    from lakebackup_jobs.backup_topics import BackupRequest, run
    from lakebackup_jobs.progress import reporter

    request = BackupRequest(
        destination=where,
        catalog=found.catalog,
        source=found.source,
        topics=tuple(topics or ()),
        patterns=tuple(pattern or ()),
        kafka=client,
        isolation=found.isolation,
        codec=found.codec,
        compression_level=found.compression_level,
        target_bytes=int(found.target_size),
        roll_ms=None if found.roll is None else round(found.roll * 1000),
        mode=found.mode,
        level=_level(found, mode, level),
        parent=parent,
        on_gap=on_gap,
        on_fork=on_fork,
        new_generation=new_generation,
        growth=found.generation_growth,
        groups=found.groups,
        schema_topics=found.schema_topics,
        dry_run=dry_run or explain,
        lease_ttl_s=found.lease_ttl,
        note=note,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        spark = session_of(context, found)
        result: dict[str, Any] = (
            _follow(request, every, spark, report) if follow else run(request, spark=spark, reporter=report)
        )
        report.result(result)


def _level(found: Settings, mode: str | None, level: int | None) -> int | None:
    """A level from a settings file is for incremental backups; a full that a person asks for has none."""
    return level if mode == "full" else found.level


def _follow(
    request: BackupRequest, every: str, spark: SparkSession | None, report: Reporter
) -> dict[str, Any]:
    """Follow until SIGINT or SIGTERM; a second one interrupts the batch."""
    from lakebackup.times import parse_duration
    from lakebackup_jobs.follow_topics import follow

    stop = threading.Event()
    with stopped_by_signals(stop, "Stops after this batch; Ctrl-C again interrupts it."):
        return follow(request, every_s=parse_duration(every) / 1000, stop=stop, spark=spark, reporter=report)
