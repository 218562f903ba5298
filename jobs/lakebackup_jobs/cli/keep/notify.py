"""`lakebackup notify`: send a test notification."""

from __future__ import annotations

import time

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.masking import secrets_of, without_secrets
from lakebackup_jobs.runtime.notify import Event, send


@verb(waits="sending")
def notify(call: Call) -> None:
    """Send a test event to the commands and the webhook in [notify] of the settings.

    Jobs send the same JSON when they end.

    Examples:
        lakebackup notify --config /etc/lakebackup.toml
    """
    settings, now_s = call.settings, time.time()
    event = Event(
        event="test",
        verb="notify",
        source=settings.source,
        destination=without_secrets(settings.repo or "", secrets_of(settings)) or None,
        outcome="ok",
        exit_code=0,
        error=None,
        started=now_s,
        finished=now_s,
    )
    problems = send(settings.notify, event)
    if not problems:
        raise UsageProblem(
            "[notify] of the settings names nobody.", hint="Set on_failure, on_success or webhook there."
        )
    call.report.result({channel: problem or "sent" for channel, problem in problems.items()})
    if any(problems.values()):
        raise EnvironmentProblem("Not all could be notified.", hint="See above what went wrong.")
