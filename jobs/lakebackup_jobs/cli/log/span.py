"""Which span of a log a restore, a full or a merge is of."""

from __future__ import annotations

from typing import Annotated

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.options import argument, option
from lakebackup_jobs.cli.values import instant, required

Name = Annotated[str, argument("NAME", "The log task.")]
Filters = Annotated[
    list[str] | None,
    option(
        "-f --filter RULE",
        "Tables by their names at the end, 'db.*' or '*.orders'; '!…' leaves out; repeatable.",
    ),
]
StartTs = Annotated[int | None, option("--startts TS", "What was committed after this ts.", min=0)]
EndTs = Annotated[int | None, option("--endts TS", "What was committed up to this ts.", min=0)]
ToTime = Annotated[
    str | None,
    option(
        "--to-time TIME",
        "Instead of --endts: 2026-11-21T14:05Z, '14:05' (today), -2h, '90 min ago'; UTC without a zone.",
    ),
]
Checksum = Annotated[
    bool,
    option(
        "--checksum/--no-checksum", "Compare the SHA-256 of each file with the one that was written down."
    ),
]
AllowGaps = Annotated[bool, option("--allow-gaps", "Restore although some events were never captured.")]


def end_of(endts: int | None, to_time: str | None) -> int | None:
    """The time flag in ms since 1970 UTC, None without it. UsageProblem when both are given."""
    if endts is not None and to_time is not None:
        raise UsageProblem("--endts and --to-time exclude each other.", hint="Each says up to where.")
    return instant(to_time)


def target_of(to: str | None) -> str:
    """Where a restore writes to. Raises UsageProblem without --to."""
    hint = "Give --to delta:PATH, --to dir:PATH or --to kafka://HOST:PORT."
    return required(to, "--to", "where does it go?", hint=hint)
