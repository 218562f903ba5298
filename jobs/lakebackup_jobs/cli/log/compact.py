"""`lakebackup log compact`: few large log files in the place of many small ones."""

from __future__ import annotations

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.flags.values import one_of
from lakebackup_jobs.cli.log import shown
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def compact(
    call: Call,
    name: str = shown.NAME,
    until: str | None = option(
        "--until TS|TIME", "Only flushes that end by then: a ts of the feed, or a time.", shown="all"
    ),
    lz4: bool = switch("--lz4", "Compress with LZ4 in the place of Zstandard."),
    encrypt: bool | None = option(
        "--encrypt/--no-encrypt",
        "Encrypt with the current key of \\[log] keys_file.",
        shown="as what it reads",
    ),
) -> None:
    """Bring small log files of many flushes together into few large ones, sorted by key.

    No restore gives anything else than before. The task may go on meanwhile; the old files stay in storage
    until the next `log truncate`.

    Examples:
        lakebackup log compact prod --from ./backups --dry-run
        lakebackup log compact prod --until -1d --from ./backups
    """
    from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest, run
    from lakebackup_jobs.logs.upkeep.truncate import ts_of

    until_ts = ts_of(*call.places, name, until) if until else None
    codec = one_of({"lz4": lz4}, otherwise="zstd")
    request = call.request(CompactLogRequest, until=until_ts, codec=codec)
    call.run(run, request, spark=not call.dry_run)
