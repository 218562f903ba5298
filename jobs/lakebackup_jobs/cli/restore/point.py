"""`lakebackup restore point`: all that a log task's tables held at a time."""

from __future__ import annotations

from typing import Annotated

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log.span import AllowGaps, Checksum, EndTs, Filters, Name, ToTime, check_end
from lakebackup_jobs.cli.options import option
from lakebackup_jobs.cli.values import check_target
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup restore point shop --from ./backups --to delta:./restored --to-time -2h",
    "lakebackup restore point shop -f 'sales.orders' --to delta:./orders --to-time 14:05 --dry-run",
)


@verb(options.FROM, options.ENGINE, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def point(
    call: Call,
    name: Name,
    to: Annotated[str | None, option("--to TARGET", "delta:PATH.")] = None,
    end_ts: EndTs = None,
    to_ms: ToTime = None,
    filters: Filters = None,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
) -> None:
    """Restore all that a log task's tables held at a time: the newest full before it, and the log from there.

    Without a full, from the log alone, when that reaches back to the beginning.
    """
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.restore.job import run

    target = check_target(to)
    check_end(end_ts, to_ms)
    if target.startswith("kafka:"):
        raise UsageProblem(
            "A point cannot be restored into topics.",
            hint="Use --to delta:PATH; `lakebackup log restore` brings a span into topics.",
        )
    call.run(run, call.request(LogRestoreRequest, target=target, on_full=True))
