"""`lakebackup merge`: one backup of a lower level out of several."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.values import instant
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup merge 2 --from ./backups --dry-run",
    "lakebackup merge 1 --from ./backups",
    "lakebackup merge 1 --from ./backups --to-date -7d",
)


@verb(
    options.FROM,
    options.PLAN,
    options.SPARK_JOB,
    options.SOURCE,
    options.LEASE,
    options.NOTE,
    options.TARGET_SIZE.but(help="Join data files up to this size."),
)
def merge(
    call: Call,
    level: Annotated[
        int,
        typer.Argument(
            metavar="LEVEL", help="Backups of this level become one of the level below; 1: a full."
        ),
    ],
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
) -> None:
    """Make the newest backups of a level that follow one another into one of the level below.

    It holds what they hold, from their files alone; they stay until a prune. Level 1 makes a full.
    """
    from lakebackup_jobs.topics.merge import MergeRequest, run

    request = MergeRequest(
        **call.fields(MergeRequest),
        level=level,
        until=until,
        to_ts=instant(to_date),
        drop_gone=drop_gone,
    )
    call.run(run, request)
