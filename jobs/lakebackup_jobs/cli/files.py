"""`lakebackup files`: a backup's manifest."""

from __future__ import annotations

from lakebackup_jobs.cli import options

EXAMPLES = options.examples(
    "lakebackup files 20261121T1405 --from ./backups", "lakebackup files 20261121T1405 --csv > files.csv"
)


def files(
    backup_id: options.BackupId,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    csv: options.Csv = False,
    _debug: options.Debug = False,
) -> None:
    """List the data files of a backup."""
    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.cli.reading import full_id, open_catalog

    reader = open_catalog(config, from_, catalog)
    batches = reader.batches("list_files", backup_id=full_id(reader, backup_id))
    rows.write(batches, as_json=json, as_csv=csv, readable=True)
