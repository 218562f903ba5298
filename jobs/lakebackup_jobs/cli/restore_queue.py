"""`lakebackup restore queue`: an engine, with its snapshot, its configuration and its queues."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.invocation import destination, instant, session_of, settings

EXAMPLES = options.examples(
    "lakebackup restore queue social --from ./backups --to kafka://localhost:9092 --into ./restored",
    "lakebackup restore queue social --to kafka://localhost:9092 --into ./restored --append --to-tid 1300",
    "lakebackup restore queue social --to kafka://other:9092 --into ./drill --to-time 14:05 --dry-run",
    "lakebackup restore queue social --to kafka://localhost:9092 --into ./drill --map delta.0=drill.delta.0",
)


def queue(
    context: typer.Context,
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="The engine's name, its source's.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TARGET", help="Where the messages go: kafka://HOST:PORT[,HOST:PORT]."),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="FOLDER",
            help="Where snapshot/, config.yaml and delta_schema_history.yaml go: a folder that is empty.",
        ),
    ] = None,
    backup: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Up to the end of this backup, also of a history that the engine was put back from.",
            show_default="the newest of its history",
        ),
    ] = None,
    to_tid: Annotated[
        int | None, typer.Option(min=0, metavar="TID", help="Everything up to this tid, and nothing behind.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Up to the last tid before which no message is later than this time. "
            "2026-11-21T14:05Z, '14:05' (today), -2h, '90 min ago', ms since 1970; UTC without a zone.",
        ),
    ] = None,
    map_: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="A queue as NEW; repeatable.")
    ] = None,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Accept queues that hold messages, such as the engine's own: watermark and messages come "
            "behind them. Stop the engine and all that writes to its queues first.",
        ),
    ] = False,
    keep_open: Annotated[
        bool,
        typer.Option("--keep-open", help="Bring messages of transactions that are open at that point, too."),
    ] = False,
    topic_settings: Annotated[
        Literal["auto", "saved", "suspended"],
        typer.Option(
            "--settings",
            help="Topic settings at the end: as saved, but no retention that eats what was restored (auto); "
            "as saved; or retention off until you set it (suspended).",
        ),
    ] = "auto",
    zero_timestamps_as_one: Annotated[
        bool,
        typer.Option(
            "--zero-timestamps-as-one",
            help="Write 1 ms for a timestamp of 0, which Kafka's C client would replace by now.",
        ),
    ] = False,
    lease_ttl: options.LeaseTtl = None,
    dry_run: options.DryRun = False,
    explain: options.Explain = False,
    kafka_config: options.KafkaConfig = None,
    kafka_property: options.KafkaProperty = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Restore an engine: its snapshot and configuration into a folder, its messages into its queues.

    Each partition gets a watermark message, then its messages in their order, up to one tid in all queues.
    Cut off, the same command goes on. The next backup of these queues stands on what was restored.
    """
    from lakebackup.patterns import parse_maps

    found = settings(
        config,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where, maps, to_ts = destination(found, "--from"), parse_maps(map_ or ()), instant(to_time)
    if not to:
        raise UsageProblem("Nobody said where the messages go.", hint="Give --to kafka://HOST:PORT.")
    if not into:
        raise UsageProblem("Nobody said where the snapshot goes.", hint="Give --into FOLDER.")
    if to_tid is not None and to_ts is not None:
        raise UsageProblem("--to-tid and --to-time exclude each other.", hint="Each says up to where.")
    from lakebackup.plan.restore_queue import QueueRestoreRequest
    from lakebackup.queues.headers import HeaderNames
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.restore_queue import run

    request = QueueRestoreRequest(
        destination=where,
        source=graph,
        target=to,
        folder=into,
        catalog=found.catalog,
        backup=backup,
        to_tid=to_tid,
        to_ts=to_ts,
        maps=maps,
        append=append,
        keep_open=keep_open,
        settings=topic_settings,
        zero_as_one=zero_timestamps_as_one,
        kafka=found.kafka,
        names=HeaderNames(
            tid=found.queue_tid_header,
            transaction=found.queue_transaction_header,
            kind=found.queue_kind_header,
            tid_format=found.queue_tid_format,
        ),
        dry_run=dry_run or explain,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)
