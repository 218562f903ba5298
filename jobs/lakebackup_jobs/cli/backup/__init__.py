"""`lakebackup backup …`: take a backup. One file a verb."""

from __future__ import annotations

import typer

from lakebackup_jobs.cli.backup import queue, snapshot, topics

app = typer.Typer(help="Take a backup.", no_args_is_help=True)
app.command("topics", epilog=topics.EXAMPLES)(topics.topics)
app.command("queue", epilog=queue.EXAMPLES)(queue.queue)
app.command("snapshot", epilog=snapshot.EXAMPLES)(snapshot.snapshot)
