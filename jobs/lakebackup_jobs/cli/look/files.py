"""`lakebackup files`: the data files that a backup added."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.output.rows import Brief
from lakebackup_jobs.cli.verb import Call, verb

COLUMNS = (
    "scope",
    "region",
    "start_position",
    "end_position",
    "min_ts",
    "max_ts",
    "entries",
    "bytes",
    "path",
)


@verb(options.ROWS)
def files(call: Call, backup_id: str = options.BACKUP_ID) -> None:
    """List the data files that a backup added; --json and --csv carry every column.

    Examples:
        lakebackup files 20261121T1405 --repo ./backups
        lakebackup files 20261121T1405 --csv > files.csv
    """
    reader = call.reader()
    rows = reader.query("list_files", backup_id=reader.resolve_backup(backup_id))
    call.write(rows, COLUMNS, Brief(COLUMNS, ("start_position", "end_position", "min_ts")))
