"""`lakebackup log snapshot` and `lakebackup log merge`: fulls of a change feed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, session_of, settings
from lakebackup_jobs.cli.log.restore import AllowGaps, Checksum, Name, end_of

EXAMPLES = options.examples(
    "lakebackup log snapshot shop --from ./backups",
    "lakebackup log snapshot shop --ts 449000000000000000",
)
MERGE = options.examples(
    "lakebackup log merge shop --from ./backups --write-snapshot-storage ./monday --to-time 2026-11-23",
    "lakebackup log merge shop --read-snapshot-storage ./monday --write-snapshot-storage s3://b/tuesday",
)


def snapshot(
    context: typer.Context,
    name: Name,
    ts: Annotated[
        int | None,
        typer.Option("--ts", "--endts", min=0, metavar="TS", help="As of this ts.", show_default="newest"),
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="Instead of --ts: as of this time.")
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Also of an encrypted log: a full is not encrypted.")
    ] = False,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
    dry_run: options.DryRun = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    lease_ttl: options.LeaseTtl = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Make a full of what a log task's tables hold: restores stand on it, and the log before it may go.

    It is made of the full before it and the log, beside the backups; no database is asked.
    """
    from lakebackup.plan.restore_log import LogRestoreRequest
    from lakebackup_jobs.changelog.snapshot import run
    from lakebackup_jobs.progress import reporter

    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    request = LogRestoreRequest(
        destination=destination(found, "--from"),
        name=name,
        catalog=found.catalog,
        end_ts=ts,
        to_ms=end_of(ts, to_time),
        checksum=checksum,
        allow_gaps=allow_gaps,
        dry_run=dry_run,
        remote=found.remote,
        keys_file=found.log.keys_file,
        lease_ttl_s=found.lease_ttl,
    )
    with reporter(as_json=json) as report:
        result: dict[str, Any] = run(request, plain=plain, spark=session_of(context, found), reporter=report)
        report.result(result)


def merge(
    context: typer.Context,
    name: Name,
    write_snapshot_storage: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where the new snapshot goes: a new Delta table.")
    ] = None,
    read_snapshot_storage: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The snapshot to stand on, of an earlier merge or restore; with --startts any like it.",
            show_default="nothing",
        ),
    ] = None,
    startts: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="TS",
            help="The log after this ts: the snapshot is as of it.",
            show_default="its end",
        ),
    ] = None,
    endts: Annotated[
        int | None, typer.Option(min=0, metavar="TS", help="The log up to this ts.", show_default="newest")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="Instead of --endts.")
    ] = None,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
    dry_run: options.DryRun = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    lease_ttl: options.LeaseTtl = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Make a new snapshot of an older one and the log after it; the older one stays as it is."""
    from lakebackup.plan.restore_log import LogRestoreRequest
    from lakebackup_jobs.changelog.restore import run
    from lakebackup_jobs.progress import reporter

    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    if not write_snapshot_storage:
        raise UsageProblem("Nobody said where it goes.", hint="Give --write-snapshot-storage PATH.")
    request = LogRestoreRequest(
        destination=destination(found, "--from"),
        name=name,
        target=f"delta:{write_snapshot_storage}",
        catalog=found.catalog,
        start_ts=startts,
        end_ts=endts,
        to_ms=end_of(endts, to_time),
        upon=read_snapshot_storage,
        checksum=checksum,
        allow_gaps=allow_gaps,
        dry_run=dry_run,
        remote=found.remote,
        keys_file=found.log.keys_file,
        lease_ttl_s=found.lease_ttl,
    )
    with reporter(as_json=json) as report:
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)
