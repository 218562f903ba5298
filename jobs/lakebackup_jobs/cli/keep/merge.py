"""`lakebackup merge`: merge several backups into one of a lower level."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import instant
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.topics.merge import MergeRequest, run


@verb(
    options.REPO,
    options.PLAN,
    options.BANDWIDTH,
    options.ANY_RUNNER,
    options.SOURCE,
    options.LEASE,
    options.NOTE,
    options.TARGET_SIZE.variant(help="Close a data file at this size. Smaller ones are joined."),
)
def merge(
    call: Call,
    level: int = argument(
        "LEVEL", "Merge backups of this level into one of the level below; 1 makes a full.", ...
    ),
    until: str | None = option(
        "--backup ID",
        "Up to the end of this backup.",
        show_default="the newest",
        autocompletion=completion.backups,
    ),
    to_ts: int | None = option(
        "--to-time TIME", "Up to and including this time. Only backups that end by then.", parser=instant
    ),
    drop_gone: bool = switch("--drop-gone", "Leave out topics that are not in the last backup."),
) -> None:
    """Merge the newest consecutive backups of a level into one of the level below.

    It reads only their files, and the merged backups stay until a prune. Merging level 1 makes a full.

    Examples:
        lakebackup merge 2 --repo ./backups --dry-run
        lakebackup merge 1 --repo ./backups
        lakebackup merge 1 --repo ./backups --to-time -7d
    """
    call.run(run, call.request(MergeRequest))
