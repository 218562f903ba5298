"""`lakebackup restore snapshot`: the files of a snapshot, into a folder."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.values import instant, required
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup restore snapshot --from ./backups --to ./restored",
    "lakebackup restore snapshot --from ./backups --to ./restored --time -2h --table orders --dry-run",
    "lakebackup restore snapshot --to ./db --layout flat --table t1 --tablet a1 --backup 20261121T140500Z",
    'lakebackup restore snapshot --to ./new --select "SELECT * FROM snapshot_files WHERE added_in = 3"',
)


@verb(options.FROM, options.PLAN, options.ENGINE, options.SPARK_JOB, options.SOURCE)
def snapshot(
    call: Call,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FOLDER", help="Where the files go: a folder that is empty.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=f"The newest snapshot at or before this time. {options.TIMES}",
            show_default="the newest",
        ),
    ] = None,
    backup: Annotated[str | None, typer.Option(metavar="ID", help="This backup's snapshot.")] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="This table alone; repeatable.")
    ] = None,
    tablet: Annotated[
        list[str] | None, typer.Option("--tablet", metavar="ID", help="This tablet alone; repeatable.")
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Restore exactly the files this SELECT on snapshot_files returns."),
    ] = None,
    layout: Annotated[
        Literal["tree", "yugabyte", "flat"],
        typer.Option(
            help="TABLE/TABLET/NAME; table-TABLE/tablet-TABLET/NAME; or, of one tablet, NAME alone."
        ),
    ] = "tree",
) -> None:
    """Restore the files of a snapshot as they were: contents, times, permissions and hard links.

    Each file is checked by its SHA-256. Damaged ones are left out and named at the end (exit code 7).
    Cut off, the same command goes on.
    """
    from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
    from lakebackup_jobs.snapshots.restore import run

    shared, to_ts = call.fields(SnapshotRestoreRequest), instant(time)
    folder = required(to, "--to", "where do the files go?", hint="Give --to FOLDER.")
    ways = {"--time": time, "--backup": backup, "--select": select}
    given = [flag for flag, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageProblem(f"{' and '.join(given)} exclude each other.", hint="Each says which files.")
    if select is not None and (table or tablet):
        raise UsageProblem(
            "--select says already which files; it excludes --table and --tablet.",
            hint="Write them into the SELECT: scope is the table, region the tablet.",
        )
    request = SnapshotRestoreRequest(
        **shared,
        folder=folder,
        to_ts=to_ts,
        backup=backup,
        tables=tuple(table or ()),
        tablets=tuple(tablet or ()),
        select=select,
        form=layout,
    )
    call.run(run, request)
