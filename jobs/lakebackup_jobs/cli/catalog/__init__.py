"""`lakebackup catalog …`: the tables themselves. One file a verb."""

from __future__ import annotations

import typer

from lakebackup_jobs.cli.catalog import break_lease, export, import_, init, manifest, optimize, rebuild

app = typer.Typer(help="Look after the catalog's tables.", no_args_is_help=True)
app.command("manifest", epilog=manifest.EXPORT)(manifest.manifest)
app.command("import-manifest", epilog=manifest.IMPORT)(manifest.import_manifest)
app.command("rebuild", epilog=rebuild.EXAMPLES)(rebuild.rebuild)
app.command("init", epilog=init.EXAMPLES)(init.init)
app.command("export", epilog=export.EXAMPLES)(export.export)
app.command("import", epilog=import_.EXAMPLES)(import_.import_)
app.command("optimize", epilog=optimize.EXAMPLES)(optimize.optimize)
app.command("break-lease", epilog=break_lease.EXAMPLES)(break_lease.break_lease)
