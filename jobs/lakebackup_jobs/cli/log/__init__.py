"""`lakebackup log …`: capture a change feed without an end. One file a verb."""

from __future__ import annotations

import typer

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
)

app = typer.Typer(
    help="Capture a change feed without an end, and restore it to any moment.", no_args_is_help=True
)
app.command("start", epilog=start.EXAMPLES)(start.start)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("pause", epilog=pause.EXAMPLES)(pause.pause)
app.command("resume", epilog=resume.EXAMPLES)(resume.resume)
app.command("stop", epilog=stop.EXAMPLES)(stop.stop)
app.command("restore", epilog=restore.EXAMPLES)(restore.restore)
app.command("snapshot", epilog=snapshot.EXAMPLES)(snapshot.snapshot)
app.command("merge", epilog=merge.EXAMPLES)(merge.merge)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("compact", epilog=compact.EXAMPLES)(compact.compact)
app.command("truncate", epilog=truncate.EXAMPLES)(truncate.truncate)
