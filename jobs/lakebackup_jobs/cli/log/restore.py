"""`lakebackup log restore`: what a log task captured of a span of time."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log.span import (
    AllowGaps,
    Checksum,
    EndTs,
    Filters,
    Name,
    StartTs,
    ToTime,
    end_of,
    target_of,
)
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup log restore shop --from ./backups --to delta:./restored --to-time 14:05",
    "lakebackup log restore shop --startts 449000000000000000 --endts 449000000009999999 --to dir:./changes",
    "lakebackup log restore shop -f 'sales.*' -f '!sales.tmp_*' --to kafka://localhost:9092?prefix=old.",
)


@verb(options.FROM, options.KAFKA_CLIENT, options.ENGINE, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def restore(
    call: Call,
    name: Name,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TARGET", help="delta:PATH | dir:PATH | kafka://HOST:PORT[,…][?prefix=TEXT]."
        ),
    ] = None,
    startts: StartTs = None,
    endts: EndTs = None,
    to_time: ToTime = None,
    filters: Filters = None,
    start_key: Annotated[str | None, typer.Option(metavar="HEX", help="Only keys from this one on.")] = None,
    end_key: Annotated[str | None, typer.Option(metavar="HEX", help="Only keys before this one.")] = None,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
) -> None:
    """Restore what a log task captured of a span of time: of each key the latest committed value.

    Without --startts from where the log begins, without an end up to its checkpoint. Into a target that an
    earlier restore made, when --startts is where that one ended. Cut off, the same command does it again.
    """
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.restore.job import run

    request = LogRestoreRequest(
        **call.fields(LogRestoreRequest),
        name=name,
        target=target_of(to),
        start_ts=startts,
        end_ts=endts,
        to_ms=end_of(endts, to_time),
        filters=tuple(filters or ()),
        first_key=_key("--start-key", start_key),
        beyond_key=_key("--end-key", end_key),
        checksum=checksum,
        allow_gaps=allow_gaps,
    )
    call.run(run, request)


def _key(flag: str, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", text):
        raise UsageProblem(f"{flag} {text!r} is no key in hex.", hint="Write two digits for each byte: 6162.")
    return text.lower() if text else None
