"""`lakebackup restore point`: all that a log task's tables held at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log.span import AllowGaps, Checksum, EndTs, Filters, Name, ToTime, end_of, target_of
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup restore point shop --from ./backups --to delta:./restored --to-time -2h",
    "lakebackup restore point shop -f 'sales.orders' --to delta:./orders --to-time 14:05 --dry-run",
)


@verb(options.FROM, options.ENGINE, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def point(
    call: Call,
    name: Name,
    to: Annotated[str | None, typer.Option("--to", metavar="TARGET", help="delta:PATH.")] = None,
    endts: EndTs = None,
    to_time: ToTime = None,
    filters: Filters = None,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
) -> None:
    """Restore all that a log task's tables held at a time: the newest full before it, and the log from there.

    Without a full, from the log alone, when that reaches back to the beginning.
    """
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.restore.job import run

    target, to_ms = target_of(to), end_of(endts, to_time)
    if target.startswith("kafka:"):
        raise UsageProblem(
            "A point cannot be restored into topics.",
            hint="Use --to delta:PATH; `lakebackup log restore` brings a span into topics.",
        )
    request = LogRestoreRequest(
        **call.fields(LogRestoreRequest),
        name=name,
        target=target,
        end_ts=endts,
        to_ms=to_ms,
        filters=tuple(filters or ()),
        on_full=True,
        checksum=checksum,
        allow_gaps=allow_gaps,
    )
    call.run(run, request)
