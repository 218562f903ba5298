"""`lakebackup archive restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.archive.what import Bucket, Folder, What
from lakebackup_jobs.cli.archive.what import folder as folder_of
from lakebackup_jobs.cli.values import instant
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup archive restore --from ./backups --to ./documents",
    "lakebackup archive restore shop --to-date 2014-01-31 --from ./backups --to ./documents",
)


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN)
def restore(
    call: Call,
    what: What = None,
    to: Folder = "",
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
) -> None:
    """Restore imported buckets into a folder: each document's newest state as a line of JSON."""
    from lakebackup_jobs.archives.restore import ArchiveRestoreRequest, run

    request = ArchiveRestoreRequest(
        **call.fields(ArchiveRestoreRequest),
        folder=folder_of(to),
        what=what,
        buckets=tuple(bucket or ()),
        from_ts=instant(from_time),
        to_ts=instant(to_time),
    )
    call.run(run, request)
