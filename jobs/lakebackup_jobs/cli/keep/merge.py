"""`lakebackup merge`: one backup of a lower level out of several."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import instant
from lakebackup_jobs.cli.verb import Call, verb


@verb(
    options.FROM,
    options.PLAN,
    options.SPARK_JOB,
    options.SOURCE,
    options.LEASE,
    options.NOTE,
    options.TARGET_SIZE.but(help="Join data files up to this size."),
)
def merge(
    call: Call,
    level: int = argument("LEVEL", "Backups of this level become one of the level below; 1: a full.", ...),
    until: str | None = option("--until ID", "The last backup to merge.", shown="the newest"),
    to_ts: int | None = option("--to-date --to-time TIME", "Only backups that end by then.", parser=instant),
    drop_gone: bool = switch("--drop-gone", "Leave out topics that the last backup does not have."),
) -> None:
    """Make the newest backups of a level that follow one another into one of the level below.

    It holds what they hold, from their files alone; they stay until a prune. Level 1 makes a full.

    Examples:
        lakebackup merge 2 --from ./backups --dry-run
        lakebackup merge 1 --from ./backups
        lakebackup merge 1 --from ./backups --to-date -7d
    """
    from lakebackup_jobs.topics.merge import MergeRequest, run

    call.run(run, call.request(MergeRequest))
