"""`lakebackup restore snapshot`: the files of a snapshot, into a folder."""

from __future__ import annotations

from typing import Literal

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import instant, required
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM, options.PLAN, options.ENGINE, options.SPARK_JOB, options.SOURCE)
def snapshot(
    call: Call,
    to: str | None = option("--to FOLDER", "Where the files go: a folder that is empty."),
    to_ts: int | None = option(
        "--time TIME",
        f"The newest snapshot at or before this time. {options.TIMES}",
        show_default="the newest",
        parser=instant,
    ),
    backup: str | None = option("--backup ID", "This backup's snapshot."),
    tables: list[str] | None = option("--table NAME", "This table alone; repeatable."),
    tablets: list[str] | None = option("--tablet ID", "This tablet alone; repeatable."),
    select: str | None = option(
        "--select SQL", "Restore exactly the files this SELECT on snapshot_files returns."
    ),
    form: Literal["tree", "yugabyte", "flat"] = option(
        "--layout",
        "TABLE/TABLET/NAME; table-TABLE/tablet-TABLET/NAME; or, of one tablet, NAME alone.",
        "tree",
    ),
) -> None:
    """Restore the files of a snapshot as they were: contents, times, permissions and hard links.

    Each file is checked by its SHA-256. Damaged ones are left out and named at the end (exit code 7).
    If it is interrupted, the same command resumes it.

    Examples:
        lakebackup restore snapshot --from ./backups --to ./restored
        lakebackup restore snapshot --from ./backups --to ./restored --time -2h --table orders --dry-run
        lakebackup restore snapshot --to ./db --layout flat --table t1 --tablet a1 --backup 20261121T140500Z
        lakebackup restore snapshot --to ./new --select "SELECT * FROM snapshot_files WHERE added_in = 3"
    """
    from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
    from lakebackup_jobs.snapshots.restore import run

    folder = required(to, "--to", "where do the files go?", hint="Give --to FOLDER.")
    ways = {"--time": to_ts, "--backup": backup, "--select": select}
    given = [flag for flag, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageProblem(f"{' and '.join(given)} exclude each other.", hint="Each says which files.")
    if select is not None and (tables or tablets):
        raise UsageProblem(
            "--select says already which files; it excludes --table and --tablet.",
            hint="Write them into the SELECT: scope is the table, region the tablet.",
        )
    call.run(run, call.request(SnapshotRestoreRequest, folder=folder))
