"""`lakebackup archive …`: archives as cbbackup writes them. One file a verb."""

from __future__ import annotations

import typer

from lakebackup_jobs.cli.archive import export, import_, restore

app = typer.Typer(help="Archives in cbbackup's format: take in, restore, write.", no_args_is_help=True)
app.command("import", epilog=import_.EXAMPLES)(import_.import_)
app.command("restore", epilog=restore.EXAMPLES)(restore.restore)
app.command("export", epilog=export.EXAMPLES)(export.export)
