"""`lakebackup catalog import`."""

from __future__ import annotations

from pathlib import Path

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def import_(
    call: Call,
    folder: str | None = argument("FOLDER", "The folder of a `catalog export`."),
    backups: str | None = option("--backups FILE", "Another program's backups: .jsonl, .parquet."),
    files: str | None = option("--files FILE", "The files that each backup added."),
    departures: str | None = option("--departures FILE", "Which backup had a file no more; with --files."),
    manifests: str | None = option(
        "--manifests FILE", "Instead: every file of every backup, unchanged ones too."
    ),
    source_kind: str = option("--source-kind NAME", "What made these backups, say restic.", "imported"),
    trust_roots: list[str] | None = option(
        "--trust-root URI",
        "Restore from this destination of the export, too; repeatable. Default: none but --from.",
    ),
) -> None:
    """Bring in backups that other catalogs or programs know, to be asked with SQL; all or nothing.

    docs/exchange.md describes the rows. Backups of other programs are neither restored nor pruned here.

    Examples:
        lakebackup catalog import ./rows --from ./backups
        lakebackup catalog import --backups snapshots.jsonl --manifests files.jsonl --source-kind restic
    """
    from lakebackup_jobs.upkeep.import_catalog import ImportRequest, run

    paths = {"backups": backups, "files": files, "departures": departures, "manifests": manifests}
    given = {
        name: path if "://" in path else str(Path(path).absolute()) for name, path in paths.items() if path
    }
    call.run(run, call.request(ImportRequest, given=given))
