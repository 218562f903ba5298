"""Common flags of the archive verbs: the backup or source to read, and the folder to write."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import completion
from lakebackup_jobs.cli.flags.options import argument, option

BACKUP_OR_SOURCE = argument(
    "ID|SOURCE",
    "A backup's id, the beginning of one, or latest. Or a source: its newest.",
    autocompletion=completion.backups_and_sources,
)
BUCKET = option("--bucket NAME", "Only this bucket or topic; repeatable.")
FOLDER = option("--to TARGET", "Where the data goes. An empty or new folder.", "")
