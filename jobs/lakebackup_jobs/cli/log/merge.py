"""`lakebackup log merge`: build a new snapshot from an older one and the log after it."""

from __future__ import annotations

from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.flags.values import required
from lakebackup_jobs.cli.log import range_flags
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.restore.job import run


@verb(options.REPO, options.BANDWIDTH, options.SPARK_JOB, options.ENGINE, options.DRY_RUN, options.LEASE)
def merge(
    call: Call,
    name: str = range_flags.NAME,
    write_snapshot_storage: str | None = option(
        "--write-snapshot-storage PATH", "Where the new snapshot goes: a new Delta table."
    ),
    upon: str | None = option(
        "--read-snapshot-storage PATH",
        "The snapshot to start from, of an earlier merge or restore; with --startts any like it.",
        show_default="nothing",
    ),
    start_ts: int | None = option(
        "--startts TS",
        "Only changes committed after this ts. The snapshot to start from is as of it.",
        min=0,
        show_default="its end",
    ),
    end_ts: int | None = range_flags.END_TS,
    to_ms: int | None = range_flags.TO_TIME,
    checksum: bool = range_flags.CHECKSUM,
    allow_gaps: bool = range_flags.ALLOW_GAPS,
) -> None:
    """Build a new snapshot from an older one and the log after it. The older one is not changed.

    Examples:
        lakebackup log merge shop --repo ./backups --write-snapshot-storage ./monday --to-time 2026-11-23
        lakebackup log merge shop --read-snapshot-storage ./monday --write-snapshot-storage s3://b/tuesday
    """
    flag = "--write-snapshot-storage"
    path = required(
        write_snapshot_storage, flag, "where does the new snapshot go?", hint=f"Give {flag} PATH."
    )
    range_flags.check_end(end_ts, to_ms)
    call.run(run, call.request(LogRestoreRequest, target=f"delta:{path}"))
