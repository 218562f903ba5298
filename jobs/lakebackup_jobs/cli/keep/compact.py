"""`lakebackup compact`: keep the latest record of each key."""

from __future__ import annotations

from typing import Annotated

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup compact --from ./backups --dry-run",
    "lakebackup compact customers --from ./backups",
    "lakebackup compact orders --all-keyed --from ./backups --note 'latest orders only'",
)


@verb(
    options.FROM,
    options.DATA_FILES,
    options.PLAN,
    options.SPARK_JOB,
    options.SOURCE,
    options.LEASE,
    options.NOTE,
)
def compact(
    call: Call,
    topics: Annotated[
        list[str] | None, argument("TOPIC", "Topics by name.", default="all compacted ones")
    ] = None,
    patterns: options.Pattern = None,
    all_keyed: Annotated[
        bool, option("--all-keyed", "Topics that are not compacted too, when all records have keys.")
    ] = False,
) -> None:
    """Rewrite the newest backups of compacted topics with only the latest record of each key.

    The result is a backup that the next one goes on from; what it replaces stays until a prune.
    """
    from lakebackup_jobs.topics.compact import CompactRequest, run

    call.run(run, call.request(CompactRequest))
