"""`lakebackup archive restore`."""

from __future__ import annotations

from lakebackup_jobs.archives.restore import ArchiveRestoreRequest, run
from lakebackup_jobs.cli.archive.what import BACKUP_OR_SOURCE, BUCKET, FOLDER
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import check_folder, instant
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO, options.BANDWIDTH, options.ANY_RUNNER, options.DRY_RUN)
def restore(
    call: Call,
    what: str | None = BACKUP_OR_SOURCE,
    to: str = FOLDER,
    buckets: list[str] | None = BUCKET,
    from_ts: int | None = option(
        "--from-time TIME",
        "Only data after this time. The backups that ended after it.",
        parser=instant,
    ),
    to_ts: int | None = option(
        "--to-time TIME",
        "Up to and including this time. The last backup that ended by then.",
        parser=instant,
    ),
) -> None:
    """Restore imported buckets into a folder: one JSON line for the newest version of each document.

    Examples:
        lakebackup archive restore --repo ./backups --to ./documents
        lakebackup archive restore shop --to-time 2014-01-31 --repo ./backups --to ./documents
    """
    call.run(run, call.request(ArchiveRestoreRequest, folder=check_folder("--to", to, "which folder?")))
