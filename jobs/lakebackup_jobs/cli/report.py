"""`lakebackup report`: what is protected, until when, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebackup_jobs.cli import options

EXAMPLES = options.examples(
    "lakebackup report --from ./backups",
    "lakebackup report --html report.html --from ./backups",
    "lakebackup report --json | jq .findings",
)


def report(
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one page that needs nothing else.")
    ] = None,
    as_of: options.AsOf = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Tell what is protected until when, what is not, and how it grows."""
    import sys
    import time

    from lakebackup_jobs import report as job
    from lakebackup_jobs.cli.invocation import instant
    from lakebackup_jobs.cli.reading import open_catalog
    from lakebackup_jobs.cli.rows import json_line
    from lakebackup_jobs.progress import print_result

    now = instant(as_of) or time.time_ns() // 1_000_000
    found = job.facts(open_catalog(config, from_, catalog, as_of), now)
    if html:
        job.write(job.page(found), html)
    if json:
        sys.stdout.write(json_line(found))
    elif html:
        print_result({"html": str(html), "findings": job.summary(found)["findings"]}, sys.stdout)
    else:
        print_result(job.summary(found), sys.stdout)
