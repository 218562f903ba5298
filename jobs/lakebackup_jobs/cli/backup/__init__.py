"""`lakebackup backup …`: take a backup. One file per verb."""

from __future__ import annotations

from lakebackup_jobs.cli.backup import queue, snapshot, topics
from lakebackup_jobs.cli.verb import group

app = group("backup", "Take a backup.", topics.topics, queue.queue, snapshot.snapshot)
