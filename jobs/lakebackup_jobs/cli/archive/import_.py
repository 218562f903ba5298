"""`lakebackup archive import`: import an archive of cbbackup."""

from __future__ import annotations

from lakebackup_jobs.archives.import_archive import ArchiveImportRequest, run
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO, options.BANDWIDTH, options.ANY_RUNNER, options.DRY_RUN, options.LEASE)
def import_(
    call: Call,
    folder: str = argument("FOLDER", "The archive: the folder that cbbackup wrote.", ...),
    source: str | None = option(
        "--source NAME", "The source's name in the catalog.", show_default="the folder's"
    ),
) -> None:
    """Import an archive: check every file, then copy them and add the backups to the catalog.

    A second run adds only new backups. Archives of releases before 3.0 work too.

    Examples:
        lakebackup archive import /backups/backup-42 --repo ./backups
        lakebackup archive import /backups/backup-42 --source shop --repo ./backups --dry-run
    """
    call.run(run, call.request(ArchiveImportRequest))
