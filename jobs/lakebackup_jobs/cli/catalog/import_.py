"""`lakebackup catalog import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup catalog import ./rows --from ./backups",
    "lakebackup catalog import --backups snapshots.jsonl --manifests files.jsonl --source-kind restic",
)


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def import_(
    call: Call,
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="The folder of a `catalog export`.")
    ] = None,
    backups: Annotated[
        str | None, typer.Option(metavar="FILE", help="Another program's backups: .jsonl, .parquet.")
    ] = None,
    files: Annotated[
        str | None, typer.Option(metavar="FILE", help="The files that each backup added.")
    ] = None,
    departures: Annotated[
        str | None, typer.Option(metavar="FILE", help="Which backup had a file no more; with --files.")
    ] = None,
    manifests: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Instead: every file of every backup, unchanged ones too."),
    ] = None,
    source_kind: Annotated[
        str, typer.Option(metavar="NAME", help="What made these backups, say restic.")
    ] = "imported",
    trust_root: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URI",
            help="Restore from this destination of the export, too; repeatable. Default: none but --from.",
        ),
    ] = None,
) -> None:
    """Bring in backups that other catalogs or programs know, to be asked with SQL; all or nothing.

    docs/exchange.md describes the rows. Backups of other programs are neither restored nor pruned here.
    """
    from lakebackup_jobs.upkeep.import_catalog import ImportRequest, run

    given = {"backups": backups, "files": files, "departures": departures, "manifests": manifests}
    request = ImportRequest(
        **call.fields(ImportRequest),
        folder=folder,
        given={
            name: path if "://" in path else str(Path(path).absolute())
            for name, path in given.items()
            if path
        },
        source_kind=source_kind,
        trust_roots=tuple(trust_root or ()),
    )
    call.run(run, request)
