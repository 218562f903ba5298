"""`lakebackup prune`: let go of what nobody was promised any more."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.invocation import destination, one_of, session_of, settings, size, span

EXAMPLES = options.examples(
    "lakebackup prune --from ./backups",
    "lakebackup prune --from ./backups --delete",
    "lakebackup prune orders --keep-time 30d --keep-size 10GiB --delete",
)


def prune(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics by name.", show_default="all of the newest backup"),
    ] = None,
    pattern: options.Pattern = None,
    delete: Annotated[bool, typer.Option("--delete", help="Do it. Without this, only tell.")] = False,
    dry_run: options.DryRun = False,
    explain: options.Explain = False,
    keep_time: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Keep records this long before the newest backup: 7d, 12h.",
            show_default="the topic's retention.ms",
        ),
    ] = None,
    keep_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Keep at least this much of each partition, the newest: 10GiB.",
            show_default="the topic's retention.bytes",
        ),
    ] = None,
    from_: options.BackupsAt = None,
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
    """Delete backed-up files whose records the topic's own retention has let go of, or as told.

    Whole files, oldest first; before the first goes, every restore point is shown to keep what it needs.
    """
    one_of({"delete": delete, "dry-run": dry_run}, otherwise="")
    one_of({"delete": delete, "explain": explain}, otherwise="")
    keep_ms, keep_bytes = span(keep_time), size("--keep-size", keep_size)
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        source=source,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.prune import PruneRequest, run

    request = PruneRequest(
        destination=where,
        catalog=found.catalog,
        source=found.source,
        topics=tuple(topics or ()),
        patterns=tuple(pattern or ()),
        keep_ms=keep_ms,
        keep_bytes=keep_bytes,
        delete=delete,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        result: dict[str, Any] = run(
            request, spark=session_of(context, found) if delete else None, reporter=report
        )
        report.result(result)
