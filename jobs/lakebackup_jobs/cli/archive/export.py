"""`lakebackup archive export`."""

from __future__ import annotations

from lakebackup_jobs.archives.export import TARGET_BYTES, ArchiveExportRequest, run
from lakebackup_jobs.cli.archive.what import BACKUP_OR_SOURCE, BUCKET, FOLDER
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import check_folder, size
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO, options.BANDWIDTH, options.ANY_RUNNER, options.DRY_RUN)
def export(
    call: Call,
    what: str | None = BACKUP_OR_SOURCE,
    to: str = FOLDER,
    buckets: list[str] | None = BUCKET,
    target_size: str = option(
        "--target-size SIZE", "Close a data file at this size. A .cbb file, of stored data.", "512MiB"
    ),
) -> None:
    """Write a backup and its chain as an archive. A topic becomes a bucket, a partition a vbucket.

    Examples:
        lakebackup archive export --repo ./backups --to ./archive
        lakebackup archive export 20261121T1405 --bucket orders --repo ./backups --to ./archive
    """
    target_bytes = size("--target-size", target_size) or TARGET_BYTES
    call.run(
        run,
        call.request(
            ArchiveExportRequest, folder=check_folder("--to", to, "which folder?"), target_bytes=target_bytes
        ),
    )
