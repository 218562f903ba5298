"""`lakebackup catalog manifest` and `import-manifest`: manifests of snapshots for and from other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebackup_jobs.cli import options

EXPORT_EXAMPLES = options.examples(
    "lakebackup catalog manifest 20261121T1405 --from ./backups",
    "lakebackup catalog manifest 20261121T1405 --out manifest.json --from ./backups",
)
IMPORT_EXAMPLES = options.examples(
    "lakebackup catalog import-manifest manifest.json --source yb --from s3://backups/yb"
)


def manifest(
    backup: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A backup's id, or as much of its beginning as is unambiguous.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to; else it is printed.", show_default=False)
    ] = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    _debug: options.Debug = False,
) -> None:
    """Print the manifest of a snapshot: table, tablet, file, and where each file's bytes are now.

    Each backup of a snapshot has its own beside it; this one tells the places as they are known today.
    """
    import os
    import sys
    from contextlib import suppress

    from lakebackup.errors import EnvironmentProblem
    from lakebackup.snapshot.manifest_json import manifest_json
    from lakebackup_jobs.cli.reading import open_catalog

    reader = open_catalog(config, from_, catalog)
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


def import_manifest(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The manifest, as JSON.", show_default=False)],
    source: options.Source = None,
    taken_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the snapshot was taken; else the greatest timestamp in it.",
            show_default=False,
        ),
    ] = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    lease_ttl: options.LeaseTtl = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Bring in another tool's manifest of a snapshot: a backup whose files are stored already.

    Nothing is copied. The files must lie in the destination, or in one that the catalog knows, and are never
    deleted by a prune. All of it comes in, or nothing.
    """
    import time

    from lakebackup.errors import UsageProblem
    from lakebackup.times import parse_time
    from lakebackup_jobs.cli.invocation import destination, session_of, settings
    from lakebackup_jobs.import_manifest import ManifestRequest, run
    from lakebackup_jobs.progress import reporter

    found = settings(
        config,
        destination=from_,
        catalog=catalog,
        source=source,
        lease_ttl=lease_ttl,
    )
    if not found.source:
        raise UsageProblem("Nobody said whose snapshot it is.", hint="Name the source with --source.")
    request = ManifestRequest(
        destination=destination(found, "--from"),
        file=file,
        source=found.source,
        catalog=found.catalog,
        taken_at=parse_time(taken_at, time.time_ns() // 1_000_000) if taken_at else None,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        report.result(run(request, spark=session_of(context, found), reporter=report))
