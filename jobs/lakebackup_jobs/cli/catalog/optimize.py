"""`lakebackup catalog optimize`."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import span
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.optimize import OptimizeRequest, run


@verb(options.REPO, options.DRY_RUN)
def optimize(
    call: Call,
    retain: str = option("--retain SPAN", "How far back `sql --as-of` can look; at least 7d.", "7d"),
) -> None:
    """Merge the tables' small files, and delete files of older versions. No row changes.

    It also deletes plans of restores that were killed, and removes rows that another program has repeated.

    Examples:
        lakebackup catalog optimize --repo ./backups
        lakebackup catalog optimize --retain 30d --dry-run --repo ./backups
    """
    retain_ms = span("--retain", retain)

    call.run(run, call.request(OptimizeRequest, retain_ms=retain_ms or 0), spark=False)
