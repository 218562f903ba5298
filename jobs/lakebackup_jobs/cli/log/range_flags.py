"""Flags for the range of a log that a restore, a full or a merge reads."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import instant
from lakebackup_jobs.cli.verb import Call
from lakebackup_jobs.logs.upkeep.truncate import ts_of

NAME = argument("NAME", "The log task.", ..., autocompletion=completion.sources)
FILTERS = option(
    "-f --filter RULE",
    "Tables as db.name, with * and ?; repeatable. !… excludes, and the last match decides. Names are "
    "the latest.",
)
START_TS = option("--startts TS", "Only changes committed after this ts.", min=0)
END_TS = option("--endts TS", "Only changes committed up to this ts.", min=0, show_default="the newest")
TO_TIME = option(
    "--to-time TIME", f"Up to and including this time. Instead of --endts. {options.TIMES}", parser=instant
)
CHECKSUM = option("--checksum/--no-checksum", "Compare each file's SHA-256 with the recorded one.", True)
ALLOW_GAPS = switch("--allow-gaps", "Continue even if some data was never backed up.")


def end_of(call: Call, name: str, end_ts: int | None, to_ms: int | None) -> int | None:
    """The end of the range as a ts of the task's feed; None when neither flag is given.

    Raises UsageProblem when both flags are given, and NotFound.
    """
    check_end(end_ts, to_ms)
    return end_ts if to_ms is None else ts_of(*call.repository_and_catalog, name, to_ms)


def check_end(end_ts: int | None, to_ms: int | None) -> None:
    """Raise UsageProblem when both --endts and --to-time are given."""
    if end_ts is not None and to_ms is not None:
        raise UsageProblem(
            "--endts and --to-time exclude each other.", hint="Give one of them: both set the end."
        )
