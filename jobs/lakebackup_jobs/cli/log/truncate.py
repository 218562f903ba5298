"""`lakebackup log truncate`: let go of the beginning of a log."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, session_of, settings
from lakebackup_jobs.cli.log import told

EXAMPLES = options.examples(
    "lakebackup log truncate prod --until -7d --from ./backups --dry-run",
    "lakebackup log truncate prod --until 2026-11-01T00:00:00Z --from ./backups --yes",
    "lakebackup log truncate prod --until 454312345678901248 --ranges-only --from ./backups",
)


def truncate(
    context: typer.Context,
    name: told.Name,
    until: Annotated[
        str,
        typer.Option(
            "--until", metavar="TS|TIME", help="What ends before goes: a ts of the feed, or a time."
        ),
    ],
    ranges_only: Annotated[
        bool,
        typer.Option("--ranges-only", help="Cut without a full: only what was committed later stays."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
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
    """Let go of the beginning of a task's log, and of what `log compact` brought together.

    The log is cut at the newest full that is not after the time given, so that every state from that full on
    can be had again; older fulls go too, unless they are held.
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
    from lakebackup_jobs.changelog.truncate import TruncateRequest, run, ts_of
    from lakebackup_jobs.progress import reporter

    request = TruncateRequest(
        destination=where,
        name=name,
        until=ts_of(where, found.catalog, name, until),
        ranges_only=ranges_only,
        catalog=found.catalog,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        look: dict[str, Any] = run(request, reporter=report)
        if dry_run or not (yes or _agreed(look)):
            report.result(look)
            return
        report.result(run(request.confirmed(), spark=session_of(context, found), reporter=report))


def _agreed(look: dict[str, Any]) -> bool:
    """Whether a person says yes to what would go. Raises UsageProblem where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UsageProblem("Nobody can be asked here.", hint="Say --yes, or look first with --dry-run.")
    what = f"{look['files']} of {look['of_files']} files, {look['bytes']:,} bytes"
    return typer.confirm(f"{what} go; what stays is restorable {look['restorable']}. Go on?", err=True)
