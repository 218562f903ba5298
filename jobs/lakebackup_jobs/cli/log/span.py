"""Which span of a log a restore, a full or a merge is of."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.values import instant, required

Name = Annotated[str, typer.Argument(metavar="NAME", help="The log task.")]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--filter",
        metavar="RULE",
        help="Tables by their names at the end, 'db.*' or '*.orders'; '!…' leaves out; repeatable.",
    ),
]
StartTs = Annotated[
    int | None, typer.Option("--startts", min=0, metavar="TS", help="What was committed after this ts.")
]
EndTs = Annotated[
    int | None, typer.Option("--endts", min=0, metavar="TS", help="What was committed up to this ts.")
]
ToTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Instead of --endts: 2026-11-21T14:05Z, '14:05' (today), -2h, '90 min ago'; UTC without a zone.",
    ),
]
Checksum = Annotated[
    bool, typer.Option(help="Compare the SHA-256 of each file with the one that was written down.")
]
AllowGaps = Annotated[
    bool, typer.Option("--allow-gaps", help="Restore although some events were never captured.")
]


def end_of(endts: int | None, to_time: str | None) -> int | None:
    """The time flag in ms since 1970 UTC, None without it. UsageProblem when both are given."""
    if endts is not None and to_time is not None:
        raise UsageProblem("--endts and --to-time exclude each other.", hint="Each says up to where.")
    return instant(to_time)


def target_of(to: str | None) -> str:
    """Where a restore writes to. Raises UsageProblem without --to."""
    hint = "Give --to delta:PATH, --to dir:PATH or --to kafka://HOST:PORT."
    return required(to, "--to", "where does it go?", hint=hint)
