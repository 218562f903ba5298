"""`lakebackup archive …`: archives as cbbackup writes them. One file a verb."""

from __future__ import annotations

from lakebackup_jobs.cli.archive import export, import_, restore
from lakebackup_jobs.cli.verb import group

app = group(
    "archive",
    "Archives in cbbackup's format: take in, restore, write.",
    import_.import_,
    restore.restore,
    export.export,
)
