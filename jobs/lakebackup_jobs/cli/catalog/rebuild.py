"""`lakebackup catalog rebuild`."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.rebuild import RebuildRequest, run


@verb(options.REPO, options.SPARK_JOB)
def rebuild(call: Call) -> None:
    """Rebuild a lost catalog from the manifests beside the backups.

    Examples:
        lakebackup catalog rebuild --repo ./backups
    """
    call.run(run, call.request(RebuildRequest))
