"""`lakebackup show`: everything about one backup."""

from __future__ import annotations

from lakebackup_jobs.cli import options

EXAMPLES = options.examples("lakebackup show 20261121T1405 --from ./backups")


def show(
    backup_id: options.BackupId,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Show one backup: what it covers, what it stands on, how large it is."""
    import sys

    from lakebackup_jobs.cli.reading import full_id, open_catalog
    from lakebackup_jobs.cli.rows import json_line
    from lakebackup_jobs.progress import print_result

    reader = open_catalog(config, from_, catalog)
    row = reader.one("show_backup", backup_id=full_id(reader, backup_id)) or {}
    if json:
        sys.stdout.write(json_line(row))
    else:
        print_result(row, sys.stdout)
