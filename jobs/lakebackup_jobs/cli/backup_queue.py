"""`lakebackup backup queue`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.invocation import destination, kafka_client, session_of, settings

_WHAT, _MESSAGES, _COPY = "What belongs to the engine", "Messages", "Copying"

EXAMPLES = options.examples(
    "lakebackup backup queue social --snapshot /data/social/snapshot --topics 'delta.*' --topics 'journal.*' "
    "--config config.yaml --schema delta_schema_history.yaml --mode full --to ./backups",
    "lakebackup backup queue social --topics 'delta.*' --topics 'journal.*' --config config.yaml "
    "--schema delta_schema_history.yaml --mode differential --to ./backups",
    "lakebackup backup queue social --topics 'delta.*' --to ./backups --dry-run",
)

Settings = Annotated[
    Path | None,
    typer.Option(
        "--settings", metavar="FILE", help="Instead of ./lakebackup.toml.", rich_help_panel="Settings"
    ),
]


def queue(
    context: typer.Context,
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="The engine's name, and its source's in the catalog.")
    ],
    topics: Annotated[
        list[str],
        typer.Option(
            "--topics",
            metavar="PATTERN",
            help="Its queues, all of them each time: names or shell patterns such as 'delta.*'; repeatable.",
            rich_help_panel=_WHAT,
        ),
    ],
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="For a full: the folder of a snapshot, there on each worker.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="For a full: where the snapshot stands in the queues.",
            show_default="PATH/../snapshot.json; without it, where the queues end",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The engine's config.yaml, kept with each backup.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="Its delta_schema_history.yaml, kept with each backup.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    to: options.KeepAt = None,
    mode: Annotated[
        Literal["full", "differential", "incremental", "auto"],
        typer.Option(
            help="full: the snapshot, and where it stands. differential: everything since the last full. "
            "incremental: since the last backup. auto: incremental, or full when there is none.",
        ),
    ] = "auto",
    tid_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Header of the tid.", show_default="tid", rich_help_panel=_MESSAGES
        ),
    ] = None,
    tid_format: Annotated[
        Literal["text", "int64"] | None,
        typer.Option(
            metavar="text|int64",
            help="Decimal digits, or 8 bytes, most significant first.",
            show_default="text",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    transaction_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Header of the transaction's id.",
            show_default="transaction",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    kind_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Header that says begin, write, commit or rollback.",
            show_default="kind",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    skip_message: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[PARTITION]@OFFSET",
            help="Leave out a message that cannot be understood, also of later backups; repeatable. "
            "It is recorded in the audit log.",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    codec: Annotated[
        Literal["null", "deflate", "snappy", "zstandard"] | None,
        typer.Option(
            metavar="CODEC",
            help="null, deflate, snappy or zstandard.",
            show_default="zstandard",
            rich_help_panel=_COPY,
        ),
    ] = None,
    compression_level: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of the codec.", show_default="the codec's", rich_help_panel=_COPY),
    ] = None,
    target_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Close a data file at this size.",
            show_default="128MiB",
            rich_help_panel=_COPY,
        ),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many tasks are to work at once.",
            show_default="processors",
            rich_help_panel=_COPY,
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept with the backup.")] = None,
    dry_run: options.DryRun = False,
    explain: options.Explain = False,
    bootstrap_servers: options.BootstrapServers = None,
    kafka_config: options.KafkaConfig = None,
    kafka_property: options.KafkaProperty = None,
    catalog: options.Catalog = None,
    lease_ttl: options.LeaseTtl = None,
    settings_file: Settings = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Back up an engine: a full of its snapshot, and from then on the messages of its queues.

    What was purged or reset before it was backed up ends with exit code 9: then a new full is needed, which
    is never taken unasked. --config is the engine's file here; lakebackup's own is --settings.
    """
    found = settings(
        settings_file,
        bootstrap_servers=bootstrap_servers,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        spark_conf=spark_conf or (),
        destination=to,
        catalog=catalog,
        codec=codec,
        compression_level=compression_level,
        target_size=target_size,
        queue_tid_header=tid_header,
        queue_tid_format=tid_format,
        queue_transaction_header=transaction_header,
        queue_kind_header=kind_header,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where, client = destination(found, "--to"), kafka_client(found)
    from lakebackup.queues.headers import HeaderNames
    from lakebackup_jobs.backup_queue import run
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.queues.request import QueueRequest

    request = QueueRequest(
        destination=where,
        source=graph,
        topics=tuple(topics),
        kafka=client,
        mode=mode,
        snapshot=snapshot,
        positions=positions,
        config=config,
        schema=schema,
        names=HeaderNames(
            tid=found.queue_tid_header,
            transaction=found.queue_transaction_header,
            kind=found.queue_kind_header,
            tid_format=found.queue_tid_format,
        ),
        skip=tuple(skip_message or ()),
        catalog=found.catalog,
        codec=found.codec,
        compression_level=found.compression_level,
        target_bytes=int(found.target_size),
        dry_run=dry_run or explain,
        lease_ttl_s=found.lease_ttl,
        note=note,
        remote=found.remote,
        **({} if parallelism is None else {"parallelism": parallelism}),
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        report.result(run(request, spark=session_of(context, found), reporter=report))
