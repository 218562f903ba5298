"""`lakebackup log compact`: few large log files in the place of many small ones."""

from __future__ import annotations

from typing import Annotated

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log import shown
from lakebackup_jobs.cli.options import option
from lakebackup_jobs.cli.values import one_of
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup log compact prod --from ./backups --dry-run",
    "lakebackup log compact prod --until -1d --from ./backups",
)


@verb(options.FROM, options.SPARK_JOB, options.DRY_RUN, options.LEASE)
def compact(
    call: Call,
    name: shown.Name,
    until: Annotated[
        str | None,
        option(
            "--until TS|TIME", "Only flushes that end by then: a ts of the feed, or a time.", default="all"
        ),
    ] = None,
    lz4: Annotated[bool, option("--lz4", "Compress with LZ4 in the place of Zstandard.")] = False,
    encrypt: Annotated[
        bool | None,
        option(
            "--encrypt/--no-encrypt",
            "Encrypt with the current key of \\[log] keys_file.",
            default="as what it reads",
        ),
    ] = None,
) -> None:
    """Bring small log files of many flushes together into few large ones, sorted by key.

    No restore gives anything else than before. The task may go on meanwhile; the old files stay in storage
    until the next `log truncate`.
    """
    from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest, run
    from lakebackup_jobs.logs.upkeep.truncate import ts_of

    until_ts = ts_of(*call.places, name, until) if until else None
    codec = one_of({"lz4": lz4}, otherwise="zstd")
    request = call.request(CompactLogRequest, until=until_ts, codec=codec)
    call.run(run, request, spark=not call.dry_run)
