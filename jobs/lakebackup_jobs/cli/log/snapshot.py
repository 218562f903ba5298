"""`lakebackup log snapshot`: a full of a change feed."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.flags.values import instant
from lakebackup_jobs.cli.log import span
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def snapshot(
    call: Call,
    name: str = span.NAME,
    end_ts: int | None = option("--ts --endts TS", "As of this ts.", min=0, shown="newest"),
    to_ms: int | None = option("--to-time TIME", "Instead of --ts: as of this time.", parser=instant),
    plain: bool = switch("--plain", "Also of an encrypted log: a full is not encrypted."),
    checksum: bool = span.CHECKSUM,
    allow_gaps: bool = span.ALLOW_GAPS,
) -> None:
    """Make a full of a log task's tables: restores start from it, and the log before it may be deleted.

    It is made of the full before it and the log, beside the backups; no database is asked.

    Examples:
        lakebackup log snapshot shop --from ./backups
        lakebackup log snapshot shop --ts 449000000000000000
    """
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.upkeep.snapshot import run

    span.check_end(end_ts, to_ms)
    call.run(run, call.request(LogRestoreRequest), plain=plain)
