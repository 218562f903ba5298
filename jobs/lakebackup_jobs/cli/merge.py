"""`lakebackup merge`: one backup of a lower level out of several."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.invocation import destination, instant, session_of, settings

EXAMPLES = options.examples(
    "lakebackup merge 2 --from ./backups --dry-run",
    "lakebackup merge 1 --from ./backups",
    "lakebackup merge 1 --from ./backups --to-date -7d",
)


def merge(
    context: typer.Context,
    level: Annotated[
        int,
        typer.Argument(
            metavar="LEVEL", help="Backups of this level become one of the level below; 1: a full."
        ),
    ],
    from_: options.BackupsAt = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="ID", help="The last backup to merge.", show_default="the newest"),
    ] = None,
    to_date: Annotated[
        str | None,
        typer.Option("--to-date", "--to-time", metavar="TIME", help="Only backups that end by then."),
    ] = None,
    drop_gone: Annotated[
        bool,
        typer.Option("--drop-gone", help="Leave out topics that the last backup does not have."),
    ] = False,
    target_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Join data files up to this size.", show_default="128MiB"),
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
    """Make the newest backups of a level that follow one another into one of the level below.

    It holds what they hold, from their files alone; they stay until a prune. Level 1 makes a full.
    """
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        source=source,
        target_size=target_size,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.merge import MergeRequest, run
    from lakebackup_jobs.progress import reporter

    request = MergeRequest(
        destination=where,
        level=level,
        catalog=found.catalog,
        source=found.source,
        until=until,
        to_ts=instant(to_date),
        drop_gone=drop_gone,
        target_bytes=int(found.target_size),
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
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)
