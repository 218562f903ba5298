"""`lakebackup catalog manifest` and `import-manifest`: exchange manifests of snapshots with other tools."""

from __future__ import annotations

import sys
from pathlib import Path

from lakebackup.formats.snapshots.manifest_json import manifest_json
from lakebackup.requests import Request
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.flags.values import instant, required
from lakebackup_jobs.cli.output.new_file import write_new_file
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.snapshots.import_manifest import ManifestRequest, run


@verb(options.REPO)
def manifest(
    call: Call,
    backup: str = options.BACKUP_ID,
    output_file: Path | None = options.OUTPUT_FILE,
) -> None:
    """Print the manifest of a snapshot: tables, tablets, files, and where each file is stored now.

    Each backup also has a manifest beside it; this command prints the current locations.

    Examples:
        lakebackup catalog manifest 20261121T1405 --repo ./backups
        lakebackup catalog manifest 20261121T1405 --out manifest.json --repo ./backups
    """
    reader = call.reader()
    pieces = manifest_json(reader, reader.resolve_backup(backup))
    if output_file is not None:
        write_new_file(call.request(Request), output_file, pieces)
        return
    for piece in pieces:
        sys.stdout.write(piece)


@verb(options.REPO, options.SOURCE, options.LEASE, waits="planning")
def import_manifest(
    call: Call,
    file: Path = argument("FILE", "The manifest, as JSON.", ..., show_default=False),
    taken_at: int | None = option(
        "--taken-at TIME",
        "When the snapshot was taken. Default: its latest timestamp.",
        show_default=False,
        parser=instant,
    ),
) -> None:
    """Import another tool's manifest of a snapshot as a backup whose files are already stored.

    It copies nothing. The files must be in this repository, or in another one that the catalog knows. No
    prune deletes them. The import is all or nothing.

    Examples:
        lakebackup catalog import-manifest manifest.json --source yb --repo s3://backups/yb
    """
    settings = call.settings
    required(settings.source, "--source", "whose snapshot is it?", hint="Give --source NAME.")
    request = call.request(ManifestRequest, remote=settings.remote)
    call.run(run, request)
