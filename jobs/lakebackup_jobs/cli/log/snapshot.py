"""`lakebackup log snapshot`: a full of a change feed."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log.span import AllowGaps, Checksum, Name, end_of
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup log snapshot shop --from ./backups",
    "lakebackup log snapshot shop --ts 449000000000000000",
)


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def snapshot(
    call: Call,
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
) -> None:
    """Make a full of what a log task's tables hold: restores stand on it, and the log before it may go.

    It is made of the full before it and the log, beside the backups; no database is asked.
    """
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.upkeep.snapshot import run

    request = LogRestoreRequest(
        **call.fields(LogRestoreRequest),
        name=name,
        end_ts=ts,
        to_ms=end_of(ts, to_time),
        checksum=checksum,
        allow_gaps=allow_gaps,
    )
    call.run(run, request, plain=plain)
