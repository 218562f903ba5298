"""Where a restore writes to."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.values import required

TARGETS = "kafka://HOST:PORT[,HOST:PORT] | delta:PATH | dir:PATH"
_SCHEMES = ("kafka://", "delta:", "dir:")


def check_target(to: str | None) -> str:
    """--to when it has one of the forms that a restore can write to. Raises UsageProblem."""
    target = required(to, "--to", "where do the records go?", hint=f"Give --to {TARGETS}.")
    scheme = next((scheme for scheme in _SCHEMES if target.startswith(scheme)), None)
    if scheme is None or len(target) == len(scheme):
        raise UsageProblem(
            f"--to {target!r} is not a place to restore to.",
            hint=f"Give {TARGETS}. (Where the backups are is --from.)",
        )
    return target
