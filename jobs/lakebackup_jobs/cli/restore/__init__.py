"""`lakebackup restore …`: bring data back. One file a verb."""

from __future__ import annotations

import typer

from lakebackup_jobs.cli.restore import groups, point, queue, snapshot, topics

app = typer.Typer(help="Bring data back.", no_args_is_help=True)
app.command("topics", epilog=topics.EXAMPLES)(topics.topics)
app.command("groups", epilog=groups.EXAMPLES)(groups.groups)
app.command("queue", epilog=queue.EXAMPLES)(queue.queue)
app.command("snapshot", epilog=snapshot.EXAMPLES)(snapshot.snapshot)
app.command("point", epilog=point.EXAMPLES)(point.point)
