"""`lakebackup log merge`: a new snapshot of an older one and the log after it."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log.span import AllowGaps, Checksum, Name, end_of
from lakebackup_jobs.cli.values import required
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup log merge shop --from ./backups --write-snapshot-storage ./monday --to-time 2026-11-23",
    "lakebackup log merge shop --read-snapshot-storage ./monday --write-snapshot-storage s3://b/tuesday",
)


@verb(options.FROM, options.SPARK_JOB, options.ENGINE, options.DRY_RUN, options.LEASE)
def merge(
    call: Call,
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
) -> None:
    """Make a new snapshot of an older one and the log after it; the older one stays as it is."""
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.restore.job import run

    flag = "--write-snapshot-storage"
    path = required(
        write_snapshot_storage, flag, "where does the new snapshot go?", hint=f"Give {flag} PATH."
    )
    request = LogRestoreRequest(
        **call.fields(LogRestoreRequest),
        name=name,
        target=f"delta:{path}",
        start_ts=startts,
        end_ts=endts,
        to_ms=end_of(endts, to_time),
        upon=read_snapshot_storage,
        checksum=checksum,
        allow_gaps=allow_gaps,
    )
    call.run(run, request)
