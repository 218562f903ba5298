"""`lakebackup restore point`: restore a log task's tables as of a time."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import check_target
from lakebackup_jobs.cli.log import range_flags
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.restore.job import run


@verb(options.REPO, options.ENGINE, options.BANDWIDTH, options.ANY_RUNNER, options.DRY_RUN, options.LEASE)
def point(
    call: Call,
    name: str = range_flags.NAME,
    to: str | None = option("--to TARGET", "Where the data goes. delta:PATH."),
    end_ts: int | None = range_flags.END_TS,
    to_ms: int | None = range_flags.TO_TIME,
    filters: list[str] | None = range_flags.FILTERS,
    checksum: bool = range_flags.CHECKSUM,
    allow_gaps: bool = range_flags.ALLOW_GAPS,
) -> None:
    """Restore a log task's tables as of a time, from the newest full before it and the log after that.

    Without a full it uses the log alone, if the log reaches back to the beginning.

    Examples:
        lakebackup restore point shop --repo ./backups --to delta:./restored --to-time -2h
        lakebackup restore point shop -f 'sales.orders' --to delta:./orders --to-time 14:05 --dry-run
    """
    target = check_target(to)
    range_flags.check_end(end_ts, to_ms)
    if target.startswith("kafka:"):
        raise UsageProblem(
            "A point cannot be restored into topics.",
            hint="Use --to delta:PATH; `lakebackup log restore` brings a span into topics.",
        )
    call.run(run, call.request(LogRestoreRequest, target=target, on_full=True))
