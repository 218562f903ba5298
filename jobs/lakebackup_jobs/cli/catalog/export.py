"""`lakebackup catalog export`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup catalog export ./rows --from ./backups",
    "lakebackup catalog export ./rows --format parquet --from ./backups",
)


@verb(options.FROM)
def export(
    call: Call,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An empty folder, or one to make.")],
    format_: Annotated[
        Literal["jsonl", "parquet"], typer.Option("--format", help="JSON lines or Parquet.")
    ] = "jsonl",
) -> None:
    """Write all rows of the catalog into files, for other programs or for `catalog import`."""
    from lakebackup_jobs.upkeep.export_catalog import ExportRequest, run

    request = ExportRequest(**call.fields(ExportRequest), folder=folder, form=format_)
    call.run(run, request, spark=False)
