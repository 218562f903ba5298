"""`lakebackup catalog export`."""

from __future__ import annotations

from typing import Literal

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.export_catalog import ExportRequest, run


@verb(options.REPO, waits="exporting")
def export(
    call: Call,
    folder: str = argument("FOLDER", "An empty folder, or one to make.", ...),
    form: Literal["jsonl", "parquet"] = option("--format", "JSON lines or Parquet.", "jsonl"),
) -> None:
    """Write all rows of the catalog to files, for other programs or for `catalog import`.

    Examples:
        lakebackup catalog export ./rows --repo ./backups
        lakebackup catalog export ./rows --format parquet --repo ./backups
    """
    call.run(run, call.request(ExportRequest), spark=False)
