"""`lakebackup list`: the backups there are."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.verb import Call, verb

COLUMNS = ("backup_id", "kind", "state", "intact", "end_ts", "files", "entries", "bytes", "source", "note")


@verb(options.ROWS, options.SOURCE)
def list_(call: Call) -> None:
    """List backups, newest first; --json and --csv carry every column.

    Examples:
        lakebackup list --repo ./backups
        lakebackup list --json | jq -r .backup_id
    """
    call.write(call.connection().backups().batches(), COLUMNS)
