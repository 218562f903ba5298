"""`lakebackup log restore` and `lakebackup restore point`: a change feed as it was at any time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, instant, session_of, settings

if TYPE_CHECKING:
    from lakebackup.config import Settings
    from lakebackup.plan.restore_log import LogRestoreRequest

EXAMPLES = options.examples(
    "lakebackup log restore shop --from ./backups --to delta:./restored --to-time 14:05",
    "lakebackup log restore shop --startts 449000000000000000 --endts 449000000009999999 --to dir:./changes",
    "lakebackup log restore shop -f 'sales.*' -f '!sales.tmp_*' --to kafka://localhost:9092?prefix=old.",
)
POINT = options.examples(
    "lakebackup restore point shop --from ./backups --to delta:./restored --to-time -2h",
    "lakebackup restore point shop -f 'sales.orders' --to delta:./orders --to-time 14:05 --dry-run",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The log task.")]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--filter",
        metavar="RULE",
        help="Tables by their names at the end, 'db.*' or '*.orders'; '!…' leaves out; repeatable.",
    ),
]
StartTs = Annotated[
    int | None, typer.Option("--startts", min=0, metavar="TS", help="What was committed after this ts.")
]
EndTs = Annotated[
    int | None, typer.Option("--endts", min=0, metavar="TS", help="What was committed up to this ts.")
]
ToTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Instead of --endts: 2026-11-21T14:05Z, '14:05' (today), -2h, '90 min ago'; UTC without a zone.",
    ),
]
Checksum = Annotated[
    bool, typer.Option(help="Compare the SHA-256 of each file with the one that was written down.")
]
AllowGaps = Annotated[
    bool, typer.Option("--allow-gaps", help="Restore although some events were never captured.")
]


def restore(
    context: typer.Context,
    name: Name,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TARGET", help="delta:PATH | dir:PATH | kafka://HOST:PORT[,…][?prefix=TEXT]."
        ),
    ] = None,
    startts: StartTs = None,
    endts: EndTs = None,
    to_time: ToTime = None,
    filters: Filters = None,
    start_key: Annotated[str | None, typer.Option(metavar="HEX", help="Only keys from this one on.")] = None,
    end_key: Annotated[str | None, typer.Option(metavar="HEX", help="Only keys before this one.")] = None,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
    dry_run: options.DryRun = False,
    kafka_config: options.KafkaConfig = None,
    kafka_property: options.KafkaProperty = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    lease_ttl: options.LeaseTtl = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Restore what a log task captured of a span of time: of each key the latest committed value.

    Without --startts from where the log begins, without an end up to its checkpoint. Into a target that an
    earlier restore made, when --startts is where that one ended. Cut off, the same command does it again.
    """
    from lakebackup.plan.restore_log import LogRestoreRequest

    found = settings(
        config,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where, to_ms = destination(found, "--from"), end_of(endts, to_time)
    request = LogRestoreRequest(
        destination=where,
        name=name,
        target=_target(to),
        catalog=found.catalog,
        start_ts=startts,
        end_ts=endts,
        to_ms=to_ms,
        filters=tuple(filters or ()),
        first_key=_key("--start-key", start_key),
        beyond_key=_key("--end-key", end_key),
        checksum=checksum,
        allow_gaps=allow_gaps,
        dry_run=dry_run,
        remote=found.remote,
        kafka=found.kafka,
        keys_file=found.log.keys_file,
        lease_ttl_s=found.lease_ttl,
    )
    _run(context, found, request, as_json=json)


def point(
    context: typer.Context,
    name: Name,
    to: Annotated[str | None, typer.Option("--to", metavar="TARGET", help="delta:PATH.")] = None,
    endts: EndTs = None,
    to_time: ToTime = None,
    filters: Filters = None,
    checksum: Checksum = True,
    allow_gaps: AllowGaps = False,
    dry_run: options.DryRun = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    lease_ttl: options.LeaseTtl = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Restore all that a log task's tables held at a time: the newest full before it, and the log from there.

    Without a full, from the log alone, when that reaches back to the beginning.
    """
    from lakebackup.plan.restore_log import LogRestoreRequest

    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where, to_ms = destination(found, "--from"), end_of(endts, to_time)
    target = _target(to)
    if target.startswith("kafka:"):
        raise UsageProblem(
            "A point cannot be restored into topics.",
            hint="Use --to delta:PATH; `lakebackup log restore` brings a span into topics.",
        )
    request = LogRestoreRequest(
        destination=where,
        name=name,
        target=target,
        catalog=found.catalog,
        end_ts=endts,
        to_ms=to_ms,
        filters=tuple(filters or ()),
        on_full=True,
        checksum=checksum,
        allow_gaps=allow_gaps,
        dry_run=dry_run,
        remote=found.remote,
        keys_file=found.log.keys_file,
        lease_ttl_s=found.lease_ttl,
    )
    _run(context, found, request, as_json=json)


def _run(context: typer.Context, found: Settings, request: LogRestoreRequest, *, as_json: bool) -> None:
    from lakebackup_jobs.changelog.restore import run
    from lakebackup_jobs.progress import reporter

    with reporter(as_json=as_json) as report:
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        report.result(result)


def end_of(endts: int | None, to_time: str | None) -> int | None:
    """The time flag in ms since 1970 UTC, None without it. UsageProblem when both are given."""
    if endts is not None and to_time is not None:
        raise UsageProblem("--endts and --to-time exclude each other.", hint="Each says up to where.")
    return instant(to_time)


def _target(to: str | None) -> str:
    if not to:
        raise UsageProblem(
            "Nobody said where it goes.",
            hint="Give --to delta:PATH, --to dir:PATH or --to kafka://HOST:PORT.",
        )
    return to


def _key(flag: str, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", text):
        raise UsageProblem(f"{flag} {text!r} is no key in hex.", hint="Write two digits for each byte: 6162.")
    return text.lower() if text else None
