"""`lakebackup log truncate`: delete the beginning of a log."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.log import common, range_flags
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest, run


@verb(options.REPO, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def truncate(
    call: Call,
    name: str = common.NAME,
    end_ts: int | None = option(
        "--endts TS", "Only changes committed up to this ts. What ends before it is deleted.", min=0
    ),
    to_ms: int | None = range_flags.TO_TIME,
    ranges_only: bool = switch(
        "--ranges-only", "Truncate without a full: keep only what was committed later."
    ),
    yes: bool = switch("--yes -y", "Do not ask for confirmation."),
) -> None:
    """Delete the beginning of a task's log, and the old files that `log compact` replaced.

    The log is cut at the newest full before that time. Every state from that full on stays restorable. Older
    fulls are deleted too, unless they are held.

    Examples:
        lakebackup log truncate prod --to-time -7d --repo ./backups --dry-run
        lakebackup log truncate prod --to-time 2026-11-01T00:00:00Z --repo ./backups --yes
        lakebackup log truncate prod --endts 454312345678901248 --ranges-only --repo ./backups
    """
    until = range_flags.end_of(call, name, end_ts, to_ms)
    if until is None:
        raise UsageProblem(
            "Missing --endts or --to-time: up to where is the log deleted?", hint="Give one of them."
        )
    request = call.request(TruncateRequest, until=until)
    preview = call.result_of(run, request, spark=False)
    call.report.clear()
    if call.dry_run or not (yes or _confirmed(preview)):
        call.report.result(preview)
    else:
        call.run(run, replace(request, delete=True))


def _confirmed(preview: dict[str, Any]) -> bool:
    """Whether the user confirms the deletion. Raises UsageProblem without a terminal."""
    if not sys.stdin.isatty():
        raise UsageProblem("No terminal to confirm on.", hint="Give --yes, or preview with --dry-run.")
    description = f"{preview['files']} of {preview['of_files']} files, {preview['bytes']:,} bytes"
    return typer.confirm(
        f"Delete {description}; the rest stays restorable {preview['restorable']}?", err=True
    )
