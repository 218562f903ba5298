"""`lakebackup log …`: capture a change feed without an end. One file a verb."""

from __future__ import annotations

import typer

from lakebackup_jobs.cli.log import pause, restore, resume, run, start, status, stop

app = typer.Typer(
    help="Capture a change feed without an end, and restore it to any moment.", no_args_is_help=True
)
app.command("start", epilog=start.EXAMPLES)(start.start)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("pause", epilog=pause.EXAMPLES)(pause.pause)
app.command("resume", epilog=resume.EXAMPLES)(resume.resume)
app.command("stop", epilog=stop.EXAMPLES)(stop.stop)
app.command("restore", epilog=restore.EXAMPLES)(restore.restore)
app.command("run", epilog=run.EXAMPLES)(run.run)
