"""`lakebackup compact`: keep the latest record of each key."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, switch
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.topics.compact import CompactRequest, run


@verb(
    options.REPO,
    options.DATA_FILES,
    options.PLAN,
    options.BANDWIDTH,
    options.SPARK_JOB,
    options.SOURCE,
    options.LEASE,
    options.NOTE,
)
def compact(
    call: Call,
    topics: list[str] | None = argument(
        "TOPIC", "Topics by name.", show_default="all compacted topics", autocompletion=completion.topics
    ),
    patterns: list[str] | None = options.PATTERN,
    all_keyed: bool = switch(
        "--all-keyed", "Also topics that are not compacted, if all their records have keys."
    ),
) -> None:
    """Rewrite the newest backups of compacted topics with only the latest record of each key.

    The next backup continues from the result. The replaced backups stay until a prune.

    Examples:
        lakebackup compact --repo ./backups --dry-run
        lakebackup compact customers --repo ./backups
        lakebackup compact orders --all-keyed --repo ./backups --note 'latest orders only'
    """
    call.run(run, call.request(CompactRequest))
