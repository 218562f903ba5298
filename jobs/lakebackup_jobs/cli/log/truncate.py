"""`lakebackup log truncate`: delete the beginning of a log."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.log import shown
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def truncate(
    call: Call,
    name: str = shown.NAME,
    until: str = option("--until TS|TIME", "What ends before goes: a ts of the feed, or a time.", ...),
    ranges_only: bool = switch("--ranges-only", "Cut without a full: only what was committed later stays."),
    yes: bool = switch("--yes -y", "Do not ask."),
) -> None:
    """Let go of the beginning of a task's log, and of what `log compact` brought together.

    The log is cut at the newest full that is not after the time given, so that every state from that full on
    can be had again; older fulls go too, unless they are held.

    Examples:
        lakebackup log truncate prod --until -7d --from ./backups --dry-run
        lakebackup log truncate prod --until 2026-11-01T00:00:00Z --from ./backups --yes
        lakebackup log truncate prod --until 454312345678901248 --ranges-only --from ./backups
    """
    from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest, run, ts_of

    request = call.request(TruncateRequest, until=ts_of(*call.places, name, until))
    look = call.result_of(run, request, spark=False)
    if call.dry_run or not (yes or _agreed(look)):
        call.report.result(look)
    else:
        call.run(run, replace(request, delete=True))


def _agreed(look: dict[str, Any]) -> bool:
    """Whether a person says yes to what would go. Raises UsageProblem where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UsageProblem("Nobody can be asked here.", hint="Say --yes, or look first with --dry-run.")
    what = f"{look['files']} of {look['of_files']} files, {look['bytes']:,} bytes"
    return typer.confirm(f"{what} go; what stays is restorable {look['restorable']}. Go on?", err=True)
