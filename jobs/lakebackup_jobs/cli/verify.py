"""`lakebackup verify`: are the backups what the catalog says?"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, one_of, session_of, settings

EXAMPLES = options.examples(
    "lakebackup verify --from ./backups",
    "lakebackup verify 20261121T1405 --decode",
    "lakebackup verify --restore --json",
)

Mode = Literal["stat", "hash", "decode", "restore"]


def verify(
    context: typer.Context,
    backup_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Backups, or how their ids begin.", show_default="all"),
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Only existence and size: quick.")] = False,
    decode: Annotated[bool, typer.Option("--decode", help="Also decode and count every record.")] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Also restore into a folder, read it back and take it away.")
    ] = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Check stored files against the catalog, both ways: existence, size and sha256.

    Findings are kept as rows (checks, storage_objects). Exit code 7: something is wrong.
    """
    mode = cast("Mode", one_of({"stat": stat, "decode": decode, "restore": restore}, otherwise="hash"))
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        remote=remote,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.verify import VerifyRequest, require_whole, run

    request = VerifyRequest(
        destination=where,
        catalog=found.catalog,
        backup_ids=tuple(backup_ids or ()),
        mode=mode,
        remote=found.remote,
        keys_file=found.log.keys_file,
    )
    with reporter(as_json=json) as report:
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)
    require_whole(result)
