"""`lakebackup show`: everything about one backup."""

from __future__ import annotations

from lakebackup_jobs.cli import options

EXAMPLES = options.examples("lakebackup show 20261121T1405 --from ./backups")

TOPIC = ("scope", "regions", "files", "entries", "bytes", "min_ts", "max_ts")


def show(
    backup_id: options.BackupId,
    as_of: options.AsOf = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Show one backup: what it covers, what it stands on, how large it is."""
    import sys

    from lakebackup_jobs.cli.reading import open_catalog
    from lakebackup_jobs.cli.rows import json_line
    from lakebackup_jobs.progress import print_result

    reader = open_catalog(config, from_, catalog, as_of)
    found = reader.resolve_backup(backup_id)
    (backup,) = reader.rows("show_backup", backup_id=found)
    topics = reader.rows("show_scopes", backup_id=found)
    if json:
        sys.stdout.write(json_line({**backup, "topics": topics}))
        return
    # The same instants stand there as numbers, which print_result writes as times.
    plain = {name: value for name, value in backup.items() if not name.endswith("_time")}
    print_result({**plain, "topics": [{name: topic[name] for name in TOPIC} for topic in topics]}, sys.stdout)
