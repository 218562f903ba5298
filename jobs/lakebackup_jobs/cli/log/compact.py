"""`lakebackup log compact`: few large log files in the place of many small ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, one_of, session_of, settings
from lakebackup_jobs.cli.log import told

EXAMPLES = options.examples(
    "lakebackup log compact prod --from ./backups --dry-run",
    "lakebackup log compact prod --until -1d --from ./backups",
)


def compact(
    context: typer.Context,
    name: told.Name,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TS|TIME",
            help="Only flushes that end by then: a ts of the feed, or a time.",
            show_default="all",
        ),
    ] = None,
    lz4: Annotated[bool, typer.Option("--lz4", help="Compress with LZ4 in the place of Zstandard.")] = False,
    encrypt: Annotated[
        bool | None,
        typer.Option(
            "--encrypt/--no-encrypt",
            help="Encrypt with the current key of \\[log] keys_file.",
            show_default="as what it reads",
        ),
    ] = None,
    dry_run: options.DryRun = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    lease_ttl: options.LeaseTtl = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Bring small log files of many flushes together into few large ones, sorted by key.

    No restore gives anything else than before. The task may go on meanwhile; the old files stay in storage
    until the next `log truncate`.
    """
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.changelog.compact import CompactLogRequest, run
    from lakebackup_jobs.changelog.truncate import ts_of
    from lakebackup_jobs.progress import reporter

    request = CompactLogRequest(
        destination=where,
        name=name,
        until=ts_of(where, found.catalog, name, until) if until else None,
        codec=one_of({"lz4": lz4}, otherwise="zstd"),
        encrypt=encrypt,
        catalog=found.catalog,
        keys_file=found.log.keys_file,
        dry_run=dry_run,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        session = None if dry_run else session_of(context, found)
        result: dict[str, Any] = run(request, spark=session, reporter=report)
        report.result(result)
