"""`lakebackup archive …`: archives as cbbackup writes them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, instant, session_of, settings, size

app = typer.Typer(help="Archives in cbbackup's format: take in, restore, write.", no_args_is_help=True)

What = Annotated[
    str | None,
    typer.Argument(metavar="BACKUP|SOURCE", help="A backup's id, or a source: its newest backup."),
]
Bucket = Annotated[
    list[str] | None, typer.Option("--bucket", metavar="NAME", help="Only this bucket or topic; repeatable.")
]


@app.command(
    "import",
    epilog=options.examples(
        "lakebackup archive import /backups/backup-42 --to ./backups",
        "lakebackup archive import /backups/backup-42 --source shop --to ./backups --dry-run",
    ),
)
def import_(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The archive: what cbbackup was given.")],
    to: options.KeepAt = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="NAME", help="Its name in the catalog.", show_default="the folder's"
        ),
    ] = None,
    dry_run: options.DryRun = False,
    catalog: options.Catalog = None,
    lease_ttl: options.LeaseTtl = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Take an archive into the catalog: every file is checked, then copied, then asked about with SQL.

    Again it adds only the backups that are new. Archives of releases before 3.0 are taken too.
    """
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=to,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where = destination(found, "--to")
    from lakebackup_jobs.archive_import import ArchiveImportRequest, run
    from lakebackup_jobs.progress import reporter

    request = ArchiveImportRequest(
        destination=where,
        folder=folder,
        source=source,
        catalog=found.catalog,
        dry_run=dry_run,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)


@app.command(
    "restore",
    epilog=options.examples(
        "lakebackup archive restore --from ./backups --to ./documents",
        "lakebackup archive restore shop --to-date 2014-01-31 --from ./backups --to ./documents",
    ),
)
def restore(
    context: typer.Context,
    what: What = None,
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="An empty folder, or one to make.")] = "",
    from_: options.BackupsAt = None,
    bucket: Bucket = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", "--from-date", metavar="TIME", help="Only backups that ended after it."),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", "--to-date", metavar="TIME", help="As of the last backup that ended by then."
        ),
    ] = None,
    dry_run: options.DryRun = False,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Restore imported buckets into a folder: each document's newest state as a line of JSON."""
    found = settings(
        config, spark_conf=spark_conf or (), destination=from_, catalog=catalog, remote=remote, master=master
    )
    where = destination(found, "--from")
    from lakebackup_jobs.archive_restore import ArchiveRestoreRequest, run
    from lakebackup_jobs.progress import reporter

    request = ArchiveRestoreRequest(
        destination=where,
        folder=_folder(to),
        what=what,
        buckets=tuple(bucket or ()),
        from_ts=instant(from_time),
        to_ts=instant(to_time),
        catalog=found.catalog,
        dry_run=dry_run,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        report.result(run(request, spark=session_of(context, found), reporter=report))


@app.command(
    "export",
    epilog=options.examples(
        "lakebackup archive export --from ./backups --to ./archive",
        "lakebackup archive export 20261121T1405 --bucket orders --from ./backups --to ./archive",
    ),
)
def export(
    context: typer.Context,
    what: What = None,
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="An empty folder, or one to make.")] = "",
    from_: options.BackupsAt = None,
    bucket: Bucket = None,
    target_size: Annotated[
        str,
        typer.Option(
            "--target-size", metavar="SIZE", help="Begin another .cbb file at this size of stored data."
        ),
    ] = "512MiB",
    dry_run: options.DryRun = False,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Write a backup and the chain it stands on as an archive: a topic is a bucket, a partition a vbucket."""
    found = settings(
        config, spark_conf=spark_conf or (), destination=from_, catalog=catalog, remote=remote, master=master
    )
    where = destination(found, "--from")
    from lakebackup_jobs.archive_export import TARGET_BYTES, ArchiveExportRequest, run
    from lakebackup_jobs.progress import reporter

    request = ArchiveExportRequest(
        destination=where,
        folder=_folder(to),
        what=what,
        buckets=tuple(bucket or ()),
        catalog=found.catalog,
        target_bytes=size("--target-size", target_size) or TARGET_BYTES,
        dry_run=dry_run,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        report.result(run(request, spark=session_of(context, found), reporter=report))


def _folder(to: str) -> str:
    """The folder to write. Raises UsageProblem without one."""
    from lakebackup.errors import UsageProblem

    if not to:
        raise UsageProblem("Nobody said where to write it.", hint="Give --to FOLDER.")
    return to.removeprefix("dir:")
