"""`lakebackup files`: a backup's manifest."""

from __future__ import annotations

from lakebackup_jobs.cli import options

EXAMPLES = options.examples(
    "lakebackup files 20261121T1405 --from ./backups", "lakebackup files 20261121T1405 --csv > files.csv"
)

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


def files(
    backup_id: options.BackupId,
    as_of: options.AsOf = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    csv: options.Csv = False,
    _debug: options.Debug = False,
) -> None:
    """List the data files that a backup added; --json and --csv carry every column."""
    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.cli.reading import open_catalog

    reader = open_catalog(config, from_, catalog, as_of)
    batches = reader.query("list_files", backup_id=reader.resolve_backup(backup_id))
    rows.write(batches, as_json=json, as_csv=csv, columns=COLUMNS)
