"""Flags for the range of a log that a restore, a full or a merge reads."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import instant

NAME = argument("NAME", "The log task.", ...)
FILTERS = option(
    "-f --filter RULE", "Tables by their latest names, 'db.*' or '*.orders'; '!…' excludes; repeatable."
)
START_TS = option("--startts TS", "Only changes committed after this ts.", min=0)
END_TS = option("--endts TS", "Only changes committed up to this ts.", min=0)
TO_TIME = option(
    "--to-time TIME",
    "Instead of --endts: 2026-11-21T14:05Z, '14:05' (today), -2h, '90 min ago'; UTC without a zone.",
    parser=instant,
)
CHECKSUM = option("--checksum/--no-checksum", "Compare each file's SHA-256 with the recorded one.", True)
ALLOW_GAPS = switch("--allow-gaps", "Restore although some events were never captured.")


def check_end(end_ts: int | None, to_ms: int | None) -> None:
    """Raises UsageProblem when both --endts and --to-time are given."""
    if end_ts is not None and to_ms is not None:
        raise UsageProblem(
            "--endts and --to-time exclude each other.", hint="Give one of them: both set the end."
        )
