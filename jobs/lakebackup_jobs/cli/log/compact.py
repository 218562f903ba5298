"""`lakebackup log compact`: few large log files in the place of many small ones."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log import shown
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
        typer.Option(
            "--until",
            metavar="TS|TIME",
            help="Only flushes that end by then: a ts of the feed, or a time.",
            show_default="all",
        ),
    ] = None,
    lz4: Annotated[bool, typer.Option("--lz4", help="Compress with LZ4 in the place of Zstandard.")] = False,
    encrypt: Annotated[
        bool | None,
        typer.Option(
            "--encrypt/--no-encrypt",
            help="Encrypt with the current key of \\[log] keys_file.",
            show_default="as what it reads",
        ),
    ] = None,
) -> None:
    """Bring small log files of many flushes together into few large ones, sorted by key.

    No restore gives anything else than before. The task may go on meanwhile; the old files stay in storage
    until the next `log truncate`.
    """
    from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest, run
    from lakebackup_jobs.logs.upkeep.truncate import ts_of

    found = call.settings
    request = CompactLogRequest(
        **call.fields(CompactLogRequest),
        name=name,
        until=ts_of(call.where, found.catalog, name, until) if until else None,
        codec=one_of({"lz4": lz4}, otherwise="zstd"),
        encrypt=encrypt,
    )
    call.run(run, request, spark=not call.dry_run)
