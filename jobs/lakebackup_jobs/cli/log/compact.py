"""`lakebackup log compact`: replace many small log files by few large ones."""

from __future__ import annotations

from typing import Literal

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.log import common, range_flags
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest, run


@verb(options.REPO, options.BANDWIDTH, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def compact(
    call: Call,
    name: str = common.NAME,
    end_ts: int | None = option(
        "--endts TS",
        "Only changes committed up to this ts. Flushes that end later stay as they are.",
        min=0,
        show_default="the newest",
    ),
    to_ms: int | None = range_flags.TO_TIME,
    codec: Literal["zstd", "lz4"] = option("--codec CODEC", "Codec of data files. zstd or lz4.", "zstd"),
    encrypt: bool | None = option(
        "--encrypt/--no-encrypt",
        "Without recipients: encrypt log files with the current key of [log] keys_file.",
        show_default="as the files it reads",
    ),
) -> None:
    """Rewrite many small log files as a few large ones, sorted by key.

    Restores give the same result as before. The task may keep running. The old files stay until the next
    `log truncate`.

    Examples:
        lakebackup log compact prod --repo ./backups --dry-run
        lakebackup log compact prod --to-time -1d --repo ./backups
    """
    until_ts = range_flags.end_of(call, name, end_ts, to_ms)
    request = call.request(CompactLogRequest, until=until_ts)
    call.run(run, request, spark=not call.dry_run)
