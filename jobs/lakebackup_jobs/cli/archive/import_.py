"""`lakebackup archive import`."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.TO, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def import_(
    call: Call,
    folder: str = argument("FOLDER", "The archive: what cbbackup was given.", ...),
    source: str | None = option("--source NAME", "Its name in the catalog.", shown="the folder's"),
) -> None:
    """Take an archive into the catalog: every file is checked, then copied, then asked about with SQL.

    Again it adds only the backups that are new. Archives of releases before 3.0 are taken too.

    Examples:
        lakebackup archive import /backups/backup-42 --to ./backups
        lakebackup archive import /backups/backup-42 --source shop --to ./backups --dry-run
    """
    from lakebackup_jobs.archives.bring_in import ArchiveImportRequest, run

    call.run(run, call.request(ArchiveImportRequest))
