"""`lakebackup list`: the backups there are."""

from __future__ import annotations

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import settings

EXAMPLES = options.examples("lakebackup list --from ./backups", "lakebackup list --json | jq -r .backup_id")

COLUMNS = ("backup_id", "kind", "state", "intact", "end_ts", "files", "entries", "bytes", "source", "note")


def list_backups(
    as_of: options.AsOf = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    source: options.Source = None,
    config: options.Config = None,
    json: options.Json = False,
    csv: options.Csv = False,
    _debug: options.Debug = False,
) -> None:
    """List backups, newest first; --json and --csv carry every column."""
    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.cli.reading import open_found

    found = settings(config, destination=from_, catalog=catalog, source=source)
    batches = open_found(found, as_of).query("list_backups", source=found.source)
    rows.write(batches, as_json=json, as_csv=csv, columns=COLUMNS)
