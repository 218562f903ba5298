"""`lakebackup list`: all backups."""

from __future__ import annotations

from lakebackup.rules.kinds import require_known
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.output.rows import Brief
from lakebackup_jobs.cli.verb import Call, verb

COLUMNS = ("backup_id", "kind", "state", "intact", "end_ts", "files", "entries", "bytes", "source", "note")
FIRST_OUT = ("note", "files", "entries")


@verb(options.ROWS, options.ONE_SOURCE)
def list_(call: Call) -> None:
    """List backups, newest first; --json and --csv carry every column.

    On a terminal, ids are shortened and times are shown as an age; --wide shows both in full.

    Examples:
        lakebackup list --repo ./backups
        lakebackup list --json | jq -r .backup_id
    """
    reader = call.reader()
    source = call.flags["source"]  # not from the settings, which would hide other sources
    if source:
        require_known(reader, source)
    brief = Brief(COLUMNS, FIRST_OUT, call.short_ids(reader))
    call.write(reader.query("list_backups", source=source), COLUMNS, brief)
