"""`lakebackup log compact`: replace many small log files by few large ones."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.flags.values import one_of
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.REPO, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def compact(
    call: Call,
    name: str = common.NAME,
    until: str | None = option(
        "--until TS|TIME", "Only flushes that end by this ts of the feed, or time.", show_default="all"
    ),
    lz4: bool = switch("--lz4", "Compress with LZ4 instead of Zstandard."),
    encrypt: bool | None = option(
        "--encrypt/--no-encrypt",
        "Encrypt with the current key of [log] keys_file.",
        show_default="as the files it reads",
    ),
) -> None:
    """Rewrite small log files of many flushes as few large ones, sorted by key.

    Restores give the same result as before. The task may run meanwhile. The old files stay until the next
    `log truncate`.

    Examples:
        lakebackup log compact prod --repo ./backups --dry-run
        lakebackup log compact prod --until -1d --repo ./backups
    """
    from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest, run
    from lakebackup_jobs.logs.upkeep.truncate import ts_of

    until_ts = ts_of(*call.places, name, until) if until else None
    codec = one_of({"lz4": lz4}, otherwise="zstd")
    request = call.request(CompactLogRequest, until=until_ts, codec=codec)
    call.run(run, request, spark=not call.dry_run)
