"""`lakebackup archive import`."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup archive import /backups/backup-42 --to ./backups",
    "lakebackup archive import /backups/backup-42 --source shop --to ./backups --dry-run",
)


@verb(options.TO, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def import_(
    call: Call,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The archive: what cbbackup was given.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="NAME", help="Its name in the catalog.", show_default="the folder's"
        ),
    ] = None,
) -> None:
    """Take an archive into the catalog: every file is checked, then copied, then asked about with SQL.

    Again it adds only the backups that are new. Archives of releases before 3.0 are taken too.
    """
    from lakebackup_jobs.archives.bring_in import ArchiveImportRequest, run

    request = ArchiveImportRequest(**call.fields(ArchiveImportRequest), folder=folder, source=source)
    call.run(run, request)
