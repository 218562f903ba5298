"""`lakebackup prune`: let go of what nobody was promised any more."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.invocation import destination, one_of, session_of, settings, size, span

EXAMPLES = options.examples(
    "lakebackup prune --from ./backups",
    "lakebackup prune --from ./backups --delete",
    "lakebackup prune 14 --delete",
    "lakebackup prune orders --keep-time 30d --keep-size 10GiB --delete",
)


def prune(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DAYS|TOPIC",
            help="A recovery window in days in place of the policy's; or topics by name.",
            show_default="by policy, and all topics of the newest backup",
        ),
    ] = None,
    pattern: options.Pattern = None,
    delete: Annotated[bool, typer.Option("--delete", help="Do it. Without this, only tell.")] = False,
    dry_run: options.DryRun = False,
    explain: options.Explain = False,
    keep_time: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Keep records this long before the newest backup: 7d, 12h.",
            show_default="the topic's retention.ms",
        ),
    ] = None,
    keep_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Keep at least this much of each partition, the newest: 10GiB.",
            show_default="the topic's retention.bytes",
        ),
    ] = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    source: options.Source = None,
    lease_ttl: options.LeaseTtl = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Let go of backups that the policy does not keep, and of files that the topics' own retention does not.

    Before the first object goes, every restore point that stays is shown to keep what it needs.
    """
    topics, days = _window(topics or [])
    one_of({"delete": delete, "dry-run": dry_run}, otherwise="")
    one_of({"delete": delete, "explain": explain}, otherwise="")
    keep_ms, keep_bytes = span(keep_time), size("--keep-size", keep_size)
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        source=source,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where = destination(found, "--from")
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.prune import PruneRequest, run

    request = PruneRequest(
        destination=where,
        catalog=found.catalog,
        source=found.source,
        topics=tuple(topics),
        days=days,
        patterns=tuple(pattern or ()),
        keep_ms=keep_ms,
        keep_bytes=keep_bytes,
        delete=delete,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        result: dict[str, Any] = run(
            request, spark=session_of(context, found) if delete else None, reporter=report
        )
        report.result(result)


def _window(arguments: list[str]) -> tuple[list[str], int | None]:
    """The topics, and the days: a first argument that is a whole number. Raises UsageProblem for both."""
    if not arguments or not (arguments[0].isascii() and arguments[0].isdecimal()):
        return arguments, None
    if len(arguments) > 1:
        raise UsageProblem(
            f"{arguments[0]} days are of whole backups, and {arguments[1]} is a topic.",
            hint="Leave out one; a topic whose name is a number comes by --pattern.",
        )
    days = int(arguments[0])
    if not days:
        raise UsageProblem(
            "A recovery window of 0 days is none.",
            hint="Give at least 1. Without a number the policy decides: lakebackup policy show.",
        )
    return [], days
