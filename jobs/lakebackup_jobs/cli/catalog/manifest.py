"""`lakebackup catalog manifest` and `import-manifest`: manifests of snapshots for and from other tools."""

from __future__ import annotations

from pathlib import Path

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.flags.values import instant, required
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM)
def manifest(
    call: Call,
    backup: str = argument(
        "ID", "A backup's id, or as much of its beginning as is unambiguous.", ..., shown=False
    ),
    out: Path | None = option("--out FILE", "Where to; else it is printed.", shown=False),
) -> None:
    """Print the manifest of a snapshot: table, tablet, file, and where each file's bytes are now.

    Each backup of a snapshot has its own beside it; this one tells the places as they are known today.

    Examples:
        lakebackup catalog manifest 20261121T1405 --from ./backups
        lakebackup catalog manifest 20261121T1405 --out manifest.json --from ./backups
    """
    import os
    import sys
    from contextlib import suppress

    from lakebackup.errors import EnvironmentProblem
    from lakebackup.formats.snapshots.manifest_json import manifest_json

    reader = call.reader()
    pieces = manifest_json(reader, reader.resolve_backup(backup))
    if out is None:
        for piece in pieces:
            sys.stdout.write(piece)
        return
    first = next(pieces)  # before the file is made
    try:
        with out.open("x", encoding="utf-8") as file:
            try:
                file.write(first)
                file.writelines(pieces)
            except BaseException:
                with suppress(OSError):
                    out.unlink()
                raise
    except OSError as error:
        raise EnvironmentProblem(
            f"{out} cannot be written: {os.strerror(error.errno or 0)}.",
            hint="Name a file that is not there yet, in a folder that can be written.",
        ) from error


@verb(options.FROM, options.SOURCE, options.LEASE)
def import_manifest(
    call: Call,
    file: Path = argument("FILE", "The manifest, as JSON.", ..., shown=False),
    taken_at: int | None = option(
        "--taken-at TIME",
        "When the snapshot was taken; else the greatest timestamp in it.",
        shown=False,
        parser=instant,
    ),
) -> None:
    """Bring in another tool's manifest of a snapshot: a backup whose files are stored already.

    Nothing is copied. The files must lie in the destination, or in one that the catalog knows, and are never
    deleted by a prune. All of it comes in, or nothing.

    Examples:
        lakebackup catalog import-manifest manifest.json --source yb --from s3://backups/yb
    """
    from lakebackup_jobs.snapshots.import_manifest import ManifestRequest, run

    found = call.settings
    required(found.source, "--source", "whose snapshot is it?", hint="Give --source NAME.")
    request = call.request(ManifestRequest, remote=found.remote)
    call.run(run, request)
