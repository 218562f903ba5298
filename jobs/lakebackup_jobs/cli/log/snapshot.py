"""`lakebackup log snapshot`: make a full from a log."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import switch
from lakebackup_jobs.cli.log import range_flags
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.upkeep.snapshot import FullRequest, run


@verb(options.REPO, options.BANDWIDTH, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def snapshot(
    call: Call,
    name: str = range_flags.NAME,
    end_ts: int | None = range_flags.END_TS,
    to_ms: int | None = range_flags.TO_TIME,
    plain: bool = switch("--plain", "Allow an encrypted log, and recipients; the full is not encrypted."),
    checksum: bool = range_flags.CHECKSUM,
    allow_gaps: bool = range_flags.ALLOW_GAPS,
) -> None:
    """Make a full of a log task's tables. Restores start from it, and the log before it may be deleted.

    It is built from the previous full and the log. The database is not read.

    Examples:
        lakebackup log snapshot shop --repo ./backups
        lakebackup log snapshot shop --endts 449000000000000000
    """
    range_flags.check_end(end_ts, to_ms)
    call.run(run, call.request(FullRequest))
