"""`lakebackup restore …`: bring data back. One file a verb."""

from __future__ import annotations

from lakebackup_jobs.cli.restore import groups, point, queue, snapshot, topics
from lakebackup_jobs.cli.verb import group

app = group(
    "restore", "Bring data back.", topics.topics, groups.groups, queue.queue, snapshot.snapshot, point.point
)
