"""`lakebackup log merge`: a new snapshot of an older one and the log after it."""

from __future__ import annotations

from typing import Annotated

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log.span import AllowGaps, Checksum, Name, check_end
from lakebackup_jobs.cli.options import option
from lakebackup_jobs.cli.values import instant, required
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup log merge shop --from ./backups --write-snapshot-storage ./monday --to-time 2026-11-23",
    "lakebackup log merge shop --read-snapshot-storage ./monday --write-snapshot-storage s3://b/tuesday",
)


@verb(options.FROM, options.SPARK_JOB, options.ENGINE, options.DRY_RUN, options.LEASE)
def merge(
    call: Call,
    name: Name,
    write_snapshot_storage: Annotated[
        str | None, option("--write-snapshot-storage PATH", "Where the new snapshot goes: a new Delta table.")
    ] = None,
    upon: Annotated[
        str | None,
        option(
            "--read-snapshot-storage PATH",
            "The snapshot to start from, of an earlier merge or restore; with --startts any like it.",
            default="nothing",
        ),
    ] = None,
    start_ts: Annotated[
        int | None,
        option("--startts TS", "The log after this ts: the snapshot is as of it.", min=0, default="its end"),
    ] = None,
    end_ts: Annotated[
        int | None, option("--endts TS", "The log up to this ts.", min=0, default="newest")
    ] = None,
    to_ms: Annotated[int | None, option("--to-time TIME", "Instead of --endts.", parser=instant)] = None,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
) -> None:
    """Make a new snapshot of an older one and the log after it; the older one stays as it is."""
    from lakebackup.plan.logs.restore import LogRestoreRequest
    from lakebackup_jobs.logs.restore.job import run

    flag = "--write-snapshot-storage"
    path = required(
        write_snapshot_storage, flag, "where does the new snapshot go?", hint=f"Give {flag} PATH."
    )
    check_end(end_ts, to_ms)
    call.run(run, call.request(LogRestoreRequest, target=f"delta:{path}"))
