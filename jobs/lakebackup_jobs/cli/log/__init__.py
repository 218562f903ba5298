"""`lakebackup log …`: capture a change feed without an end. One file a verb."""

from __future__ import annotations

from lakebackup_jobs.cli.log import (
    compact,
    merge,
    pause,
    restore,
    resume,
    run,
    snapshot,
    start,
    status,
    stop,
    truncate,
)  # fmt: skip
from lakebackup_jobs.cli.verb import group

app = group(
    "log",
    "Capture a change feed without an end, and restore it to any moment.",
    start.start,
    status.status,
    pause.pause,
    resume.resume,
    stop.stop,
    restore.restore,
    snapshot.snapshot,
    merge.merge,
    run.run,
    compact.compact,
    truncate.truncate,
)
