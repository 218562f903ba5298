"""`lakebackup log restore`: restore a time span of a log task's log."""

from __future__ import annotations

import re

from lakebackup.errors import UsageProblem
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import check_target
from lakebackup_jobs.cli.log import range_flags
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.restore.job import run


@verb(
    options.REPO,
    options.KAFKA_CLIENT,
    options.ENGINE,
    options.BANDWIDTH,
    options.ANY_RUNNER,
    options.DRY_RUN,
    options.LEASE,
)
def restore(
    call: Call,
    name: str = range_flags.NAME,
    to: str | None = option(
        "--to TARGET", "Where the data goes. delta:PATH | dir:PATH | kafka://HOST:PORT[,…][?prefix=TEXT]."
    ),
    start_ts: int | None = range_flags.START_TS,
    end_ts: int | None = range_flags.END_TS,
    to_ms: int | None = range_flags.TO_TIME,
    filters: list[str] | None = range_flags.FILTERS,
    start_key: str | None = option("--start-key HEX", "Only keys from this one on."),
    end_key: str | None = option("--end-key HEX", "Only keys before this one."),
    checksum: bool = range_flags.CHECKSUM,
    allow_gaps: bool = range_flags.ALLOW_GAPS,
) -> None:
    """Restore a time span of a log task's log: the latest committed value of each key.

    The span begins where the log begins unless --startts is given, and ends at the checkpoint unless
    --to-time or --endts is. To continue in the target of an earlier restore, give the end of that restore
    as --startts. If it is interrupted, run the same command again.

    Examples:
        lakebackup log restore shop --repo ./backups --to delta:./restored --to-time 14:05
        lakebackup log restore shop --startts 449000000000000000 --endts 449000000009999999 --to dir:./changes
        lakebackup log restore shop -f 'sales.*' -f '!sales.tmp_*' --to kafka://localhost:9092?prefix=old.
    """
    target = check_target(to)
    range_flags.check_end(end_ts, to_ms)
    request = call.request(
        LogRestoreRequest,
        target=target,
        first_key=_key("--start-key", start_key),
        beyond_key=_key("--end-key", end_key),
    )
    call.run(run, request)


def _key(flag: str, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", text):
        raise UsageProblem(f"{flag} {text!r} is no key in hex.", hint="Write two digits for each byte: 6162.")
    return text.lower() if text else None
