"""`lakebackup compact`: keep the latest record of each key."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.backup import Codec
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.invocation import destination, session_of, settings

EXAMPLES = options.examples(
    "lakebackup compact --from ./backups --dry-run",
    "lakebackup compact customers --from ./backups",
    "lakebackup compact orders --all-keyed --from ./backups --note 'latest orders only'",
)


def compact(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics by name.", show_default="all compacted ones"),
    ] = None,
    pattern: options.Pattern = None,
    from_: options.BackupsAt = None,
    all_keyed: Annotated[
        bool,
        typer.Option("--all-keyed", help="Topics that are not compacted too, when all records have keys."),
    ] = False,
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
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept with the backup.")] = None,
    dry_run: options.DryRun = False,
    explain: options.Explain = False,
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
    """Write the newest backups of compacted topics anew, with the latest record of each key alone.

    The result is a backup that the next one goes on from; what it replaces stays until a prune.
    """
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        source=source,
        codec=codec,
        compression_level=compression_level,
        target_size=target_size,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.compact import CompactRequest, run
    from lakebackup_jobs.progress import reporter

    request = CompactRequest(
        destination=where,
        topics=tuple(topics or ()),
        patterns=tuple(pattern or ()),
        all_keyed=all_keyed,
        catalog=found.catalog,
        source=found.source,
        codec=found.codec,
        compression_level=found.compression_level,
        target_bytes=int(found.target_size),
        dry_run=dry_run or explain,
        lease_ttl_s=found.lease_ttl,
        note=note,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)
