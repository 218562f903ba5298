"""`lakebackup sql`: any question to the catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options

EXAMPLES = options.examples(
    'lakebackup sql "SELECT source, count(*) AS backups FROM backups GROUP BY source"',
    "lakebackup sql \"SELECT path FROM files WHERE scope = 'orders' AND bytes > 1000000\" --csv",
    "lakebackup sql - < question.sql",
    'lakebackup sql --as-of -7d "SELECT scope, max(covers_to) AS until FROM restore_points GROUP BY scope"',
)


def sql(
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help="One SELECT; '-' reads it from standard input.")
    ],
    as_of: options.AsOf = None,
    explain: options.Explain = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    csv: options.Csv = False,
    _debug: options.Debug = False,
) -> None:
    """Ask the catalog with a SELECT over its tables (backups, files, positions, gaps, restores, …).

    Only reads: one SELECT, catalog tables alone, no function that touches files. With --as-of, tables are
    as they were then, and now_files is what files is now.
    """
    import sys

    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.cli.reading import open_catalog

    text = sys.stdin.read() if statement == "-" else statement
    if explain:
        from lakebackup_jobs.cli.explain import explain as show

        show(lambda: open_catalog(config, from_, catalog, as_of).select(text), as_json=json)
        return
    rows.write(open_catalog(config, from_, catalog, as_of).select(text), as_json=json, as_csv=csv)
