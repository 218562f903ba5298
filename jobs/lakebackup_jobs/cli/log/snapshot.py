"""`lakebackup log snapshot`: a full of a change feed."""

from __future__ import annotations

from typing import Annotated

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log.span import AllowGaps, Checksum, Name, check_end
from lakebackup_jobs.cli.options import option
from lakebackup_jobs.cli.values import instant
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup log snapshot shop --from ./backups", "lakebackup log snapshot shop --ts 449000000000000000"
)


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def snapshot(
    call: Call,
    name: Name,
    end_ts: Annotated[
        int | None, option("--ts --endts TS", "As of this ts.", min=0, default="newest")
    ] = None,
    to_ms: Annotated[
        int | None, option("--to-time TIME", "Instead of --ts: as of this time.", parser=instant)
    ] = None,
    plain: Annotated[bool, option("--plain", "Also of an encrypted log: a full is not encrypted.")] = False,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
) -> None:
    """Make a full of a log task's tables: restores start from it, and the log before it may be deleted.

    It is made of the full before it and the log, beside the backups; no database is asked.
    """
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.upkeep.snapshot import run

    check_end(end_ts, to_ms)
    call.run(run, call.request(LogRestoreRequest), plain=plain)
