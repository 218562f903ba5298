"""`lakebackup restore …`: bring data back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from lakebackup.errors import Refused, UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.explain import explain as show
from lakebackup_jobs.cli.invocation import destination, instant, session_of, settings

app = typer.Typer(help="Bring data back.", no_args_is_help=True)

TARGETS = "kafka://HOST:PORT[,HOST:PORT] | delta:PATH | dir:PATH"
_SCHEMES = ("kafka://", "delta:", "dir:")


@app.command(
    "topics",
    epilog=options.examples(
        "lakebackup restore topics orders --from ./backups --to kafka://localhost:9092 --to-time 14:05",
        "lakebackup restore topics orders --to kafka://localhost:9092 --map orders=before --to-time -2h",
        "lakebackup restore topics orders --to delta:./orders --dry-run",
        "lakebackup restore topics --pattern '.*' --groups '.*' --to kafka://localhost:9092",
        'lakebackup restore topics --to dir:./out --partial --select "SELECT * FROM files WHERE bytes > 0"',
    ),
)
def topics(
    context: typer.Context,
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Topics by name.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TARGET", help=f"Where the records go: {TARGETS}.")
    ] = None,
    pattern: options.Pattern = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            "--to-date",
            metavar="TIME",
            help="Bring back records up to and including this time. "
            "2026-11-21T14:05Z, '14:05' (today), -2h, '90 min ago', ms since 1970; UTC without a zone.",
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", "--from-date", metavar="TIME", help="Only records after this."),
    ] = None,
    backup: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Bring back what this backup and those it stands on hold."),
    ] = None,
    map_: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="Restore as NEW; repeatable.")
    ] = None,
    select: Annotated[
        str | None, typer.Option(metavar="SQL", help="Restore exactly the files this SELECT returns.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept a --select that leaves holes in the topics.")
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="Accept a topic that has records.")] = False,
    continue_: Annotated[
        bool, typer.Option("--continue", help="Bring only what earlier restores into these topics did not.")
    ] = False,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Then put consumer groups whose whole name matches where they stood; repeatable.",
        ),
    ] = None,
    repartition: Annotated[
        bool,
        typer.Option(
            "--repartition",
            help="Accept another number of partitions: each record goes where its key belongs.",
        ),
    ] = False,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of a topic that is made, with --repartition.")
    ] = None,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Restore although some records were never backed up.")
    ] = False,
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate",
            help="Restore a compacted topic to a time between two backups, without values that were "
            "replaced before the later one.",
        ),
    ] = False,
    topic_settings: Annotated[
        Literal["auto", "saved", "suspended"],
        typer.Option(
            "--settings",
            help="Topic settings at the end: as saved, but no retention that eats what was restored (auto); "
            "as saved; or retention off until you set it (suspended).",
        ),
    ] = "auto",
    zero_timestamps_as_one: Annotated[
        bool,
        typer.Option(
            "--zero-timestamps-as-one",
            help="Write 1 ms for a timestamp of 0, which Kafka's C client would replace by now.",
        ),
    ] = False,
    lease_ttl: options.LeaseTtl = None,
    dry_run: options.DryRun = False,
    save_plan: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With --dry-run: keep the plan, to be applied with --plan."),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Carry out a plan that was saved, if it still holds."),
    ] = None,
    explain: options.Explain = False,
    kafka_config: options.KafkaConfig = None,
    kafka_property: options.KafkaProperty = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    source: options.Source = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Restore Kafka topics to a time: same partitions, order, keys, values, headers and timestamps.

    Refused, with nothing written, when the result could not be right. Cut off, the same command goes on.

    --from is where the backups are, --to where the records go.
    """
    from lakebackup.patterns import parse_maps

    found = settings(
        config,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        source=source,
        lease_ttl=lease_ttl,
        remote=remote,
        master=master,
    )
    where, maps = destination(found, "--from"), parse_maps(map_ or ())
    if save_plan and (plan or not dry_run):
        raise UsageProblem("--save-plan keeps what --dry-run has planned.", hint="Give --dry-run too.")
    target = check_target(to) if plan is None else _of_plan(plan, to, locals())
    from_ts, to_ts = instant(from_time), instant(to_time)
    if from_ts is not None and to_ts is not None and from_ts >= to_ts:
        raise UsageProblem("--from-time is not before --to-time, so nothing lies between them.")
    if backup and (to_ts is not None or select is not None):
        raise UsageProblem(
            f"--backup and --{'select' if select else 'to-time'} exclude each other.",
            hint="Give one of them: each says up to where to restore.",
        )
    from lakebackup.plan.restore_request import RestoreRequest
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.restore_topics import run

    request = RestoreRequest(
        destination=where,
        catalog=found.catalog,
        source=found.source,
        topics=tuple(topics or ()),
        patterns=tuple(pattern or ()),
        maps=maps,
        to_ts=to_ts,
        from_ts=from_ts,
        backup=backup,
        select=select,
        partial=partial,
        target=target,
        kafka=found.kafka,
        append=append,
        continued=continue_,
        groups=tuple(groups or ()),
        repartition=repartition,
        partitions=partitions,
        allow_gaps=allow_gaps,
        approximate=approximate,
        settings=topic_settings,
        zero_as_one=zero_timestamps_as_one,
        dry_run=dry_run or explain,
        lease_ttl_s=found.lease_ttl,
        remote=found.remote,
        save_plan=save_plan,
        plan=plan,
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        result: dict[str, Any] = run(request, spark=session_of(context, found), reporter=report)
        refused, hint = result.pop("refused", None), result.pop("hint", "")
        # The SQL is what --explain is for.
        report.result({k: v for k, v in result.items() if k not in ("selection", "parameters")})
        if refused:
            raise Refused(refused, hint=hint)


@app.command(
    "groups",
    epilog=options.examples(
        "lakebackup restore groups --pattern '.*' --from ./backups --to kafka://localhost:9092 --dry-run",
        "lakebackup restore groups billing --to kafka://localhost:9092 --map orders=orders2 --at-time 14:05",
    ),
)
def groups(
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Groups by name.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TARGET", help="kafka://HOST:PORT[,HOST:PORT].")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", metavar="REGEX", help="Groups whose whole name matches; repeatable."),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="OLD=NEW", help="The topic that OLD was restored into, if several; repeatable."
        ),
    ] = None,
    map_group: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Another name for a group; repeatable.")
    ] = None,
    at_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Where they stood then, as far as backups know. Without: at the last backup."
        ),
    ] = None,
    from_log: Annotated[
        bool,
        typer.Option(
            "--from-log",
            help="Their last offsets in __consumer_offsets, also those erased since (a topic was deleted).",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Put back groups that are further in the target already.")
    ] = False,
    dry_run: options.DryRun = False,
    explain: options.Explain = False,
    kafka_config: options.KafkaConfig = None,
    kafka_property: options.KafkaProperty = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    source: options.Source = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Put consumer groups where they stood, in topics that `restore topics` brought back.

    Their old offsets are translated; each partition of each group has one of the outcomes moved, unchanged,
    at_end, in_gap, ahead, active, unknown, not_restored and topic_deleted. Can be repeated.
    """
    from lakebackup.patterns import parse_maps
    from lakebackup.plan.restore_groups import parse_group_maps

    found = settings(
        config,
        kafka_config=kafka_config,
        kafka_properties=kafka_property or (),
        destination=from_,
        catalog=catalog,
        source=source,
    )
    where, target = destination(found, "--from"), check_target(to)
    maps, group_maps, at_ts = parse_maps(map_ or ()), parse_group_maps(map_group or ()), instant(at_time)
    from lakebackup_jobs.progress import reporter
    from lakebackup_jobs.restore_groups import GroupsRequest, run

    request = GroupsRequest(
        destination=where,
        target=target,
        groups=tuple(groups or ()),
        patterns=tuple(pattern or ()),
        catalog=found.catalog,
        source=found.source,
        maps=maps,
        group_maps=group_maps,
        at_ts=at_ts,
        from_log=from_log,
        force=force,
        kafka=found.kafka,
        dry_run=dry_run or explain,
    )
    with reporter(as_json=json) as report:
        if explain:
            show(lambda: run(request, reporter=report), as_json=json)
            return
        report.result(run(request, reporter=report))


# Flags of `restore topics` that say what a plan says already.
_CHOOSING = (
    "topics", "pattern", "to_time", "from_time", "backup", "map_", "select", "partial", "append", "continue_",
    "groups", "repartition", "partitions", "allow_gaps", "approximate", "zero_timestamps_as_one", "source",
)  # fmt: skip


def _of_plan(plan: str, to: str | None, given: Mapping[str, Any]) -> str:
    """The target of a saved plan. Raises UsageProblem when flags say what the plan says."""
    from pathlib import Path

    from lakebackup.plan import saved

    twice = [name.strip("_").replace("_", "-") for name in _CHOOSING if given[name]]
    if given["topic_settings"] != "auto":
        twice.append("settings")
    if twice:
        raise UsageProblem(
            f"--plan says already what to restore and how; it excludes {', '.join(twice)}.",
            hint="Leave them out, or plan once more.",
        )
    target: str = saved.read(Path(plan)).request["target"]
    if to is not None and to != target:
        raise UsageProblem(f"The plan is one into {target}, not into {to}.", hint="Leave --to out.")
    return target


def check_target(target: str | None) -> str:
    """`target` when it has one of the forms a restore can write to, else UsageProblem."""
    if not target:
        raise UsageProblem("Nobody said where the records go.", hint=f"Give --to {TARGETS}.")
    scheme = next((scheme for scheme in _SCHEMES if target.startswith(scheme)), None)
    if scheme is None or len(target) == len(scheme):
        raise UsageProblem(
            f"--to {target!r} is not a place to restore to.",
            hint=f"Give {TARGETS}. (Where the backups are is --from.)",
        )
    return target
