"""`lakebackup catalog import`: import rows of other catalogs and programs."""

from __future__ import annotations

from pathlib import Path

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.import_catalog import ImportRequest, run


@verb(options.REPO, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def import_(
    call: Call,
    folder: str | None = argument("FOLDER", "The folder of a `catalog export`."),
    backups: str | None = option("--backups FILE", "Backups of another program, as .jsonl or .parquet."),
    files: str | None = option("--files FILE", "The files that each backup added."),
    departures: str | None = option(
        "--departures FILE", "With --files: the first backup in which a file is gone."
    ),
    manifests: str | None = option(
        "--manifests FILE", "Instead of --files: every file of every backup, unchanged ones too."
    ),
    source_kind: str = option(
        "--source-kind NAME", "The program that made these backups, such as restic.", "imported"
    ),
    mirror: bool = switch(
        "--mirror", "--backups lists all backups of its sources: others were deleted by the program."
    ),
    trust_roots: list[str] | None = option(
        "--trust-root URI",
        "Also restore from this repository of the export; repeatable. Default: only --repo.",
    ),
) -> None:
    """Import the rows of another catalog or program, for SQL queries; all or nothing.

    Every row needs `backup_id`. A backup needs `source` and `end_ts` (ms). A file needs `path` and `bytes`,
    and in --manifests `sha256` or `max_ts`. Other columns are those of the views `backups` and `files`.
    lakebackup neither restores nor deletes backups of other programs.

    Examples:
        lakebackup catalog import ./rows --repo ./backups
        lakebackup catalog import --backups snapshots.jsonl --manifests files.jsonl --source-kind restic
    """
    paths = {"backups": backups, "files": files, "departures": departures, "manifests": manifests}
    input_paths = {
        name: path if "://" in path else str(Path(path).absolute()) for name, path in paths.items() if path
    }
    call.run(run, call.request(ImportRequest, input_paths=input_paths))
