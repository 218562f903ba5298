"""`lakebackup restore snapshot`: restore the files of a snapshot to a folder."""

from __future__ import annotations

from typing import Literal

from lakebackup.errors import UsageProblem
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import check_folder, instant
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.snapshots.restore import run


@verb(options.REPO, options.PLAN, options.ENGINE, options.BANDWIDTH, options.ANY_RUNNER, options.SOURCE)
def snapshot(
    call: Call,
    to: str | None = option("--to TARGET", "Where the data goes. An empty folder."),
    to_ts: int | None = option(
        "--to-time TIME",
        f"Up to and including this time. The newest snapshot by then. {options.TIMES}",
        show_default="the newest",
        parser=instant,
    ),
    backup: str | None = option(
        "--backup ID", "Up to the end of this backup.", autocompletion=completion.backups
    ),
    tables: list[str] | None = option("--table NAME", "Only this table; repeatable."),
    tablets: list[str] | None = option("--tablet ID", "Only this tablet; repeatable."),
    select: str | None = options.SELECT,
    form: Literal["tree", "yugabyte", "flat"] = option(
        "--layout LAYOUT",
        "How paths name table, tablet and file. "
        "tree: TABLE/TABLET/NAME. yugabyte: table-TABLE/tablet-TABLET/NAME. flat: NAME, for one tablet.",
        "tree",
    ),
) -> None:
    """Restore the files of a snapshot as they were: contents, times, permissions and hard links.

    A plain folder is restored into a folder of the same name below --to, with --layout flat into --to itself.
    Each file's SHA-256 is checked. Damaged files are left out and listed at the end (exit code 7). If the
    restore is interrupted, run the same command again to resume it.

    Examples:
        lakebackup restore snapshot --repo ./backups --to ./restored
        lakebackup restore snapshot --repo ./backups --to ./restored --to-time -2h --table orders --dry-run
        lakebackup restore snapshot --to ./db --layout flat --table t1 --tablet a1 --backup 20261121T140500Z
        lakebackup restore snapshot --to ./new --select "SELECT * FROM snapshot_files WHERE added_in = 3"
    """
    folder = check_folder("--to", to, "where do the files go?")
    selections = {"--to-time": to_ts, "--backup": backup, "--select": select}
    given_flags = [flag for flag, value in selections.items() if value is not None]
    if len(given_flags) > 1:
        raise UsageProblem(f"{' and '.join(given_flags)} exclude each other.", hint="Give one of them.")
    if select is not None and (tables or tablets):
        raise UsageProblem(
            "--select excludes --table and --tablet.",
            hint="Filter in the SELECT: scope is the table, region the tablet.",
        )
    call.run(run, call.request(SnapshotRestoreRequest, folder=folder))
