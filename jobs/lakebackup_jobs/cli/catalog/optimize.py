"""`lakebackup catalog optimize`."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import span
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO, options.SPARK_JOB, options.DRY_RUN)
def optimize(
    call: Call,
    retain: str = option(
        "--retain SPAN", "How far back the tables can be asked as they were (sql --as-of); 7d at least.", "7d"
    ),
) -> None:
    """Bring the tables' small files together, and delete files of older versions. No row changes.

    Deletes also the plans that killed restores of a log left in the destination.

    Examples:
        lakebackup catalog optimize --repo ./backups
        lakebackup catalog optimize --retain 30d --dry-run --repo ./backups
    """
    retain_ms = span("--retain", retain)
    from lakebackup_jobs.upkeep.optimize import OptimizeRequest, run

    call.run(run, call.request(OptimizeRequest, retain_ms=retain_ms or 0), spark=not call.dry_run)
