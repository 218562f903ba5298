"""`lakebackup restore topics`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebackup.errors import Refused, UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.restore.target import TARGETS, check_target
from lakebackup_jobs.cli.values import instant
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup restore topics orders --from ./backups --to kafka://localhost:9092 --to-time 14:05",
    "lakebackup restore topics orders --to kafka://localhost:9092 --map orders=before --to-time -2h",
    "lakebackup restore topics orders --to delta:./orders --dry-run",
    "lakebackup restore topics --pattern '.*' --groups '.*' --to kafka://localhost:9092",
    'lakebackup restore topics --to dir:./out --partial --select "SELECT * FROM files WHERE bytes > 0"',
)


@verb(
    options.FROM, options.PLAN, options.ENGINE, options.KAFKA_CLIENT, options.SPARK_JOB, options.SOURCE,
    options.LEASE,
)  # fmt: skip
def topics(
    call: Call,
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
            help=f"Bring back records up to and including this time. {options.TIMES}",
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
    settings: options.TopicSettings = "auto",
    zero_timestamps_as_one: options.ZeroTimestampsAsOne = False,
    save_plan: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With --dry-run: keep the plan, to be applied with --plan."),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Carry out a plan that was saved, if it still holds."),
    ] = None,
) -> None:
    """Restore Kafka topics to a time: same partitions, order, keys, values, headers and timestamps.

    Refused, with nothing written, when the result could not be right. Cut off, the same command goes on.

    --from is where the backups are, --to where the records go.
    """
    from lakebackup.plan.topics.request import RestoreRequest
    from lakebackup.rules.patterns import parse_maps
    from lakebackup_jobs.topics.restore import run

    shared, maps = call.fields(RestoreRequest), parse_maps(map_ or ())
    if save_plan and (plan or not call.dry_run):
        raise UsageProblem("--save-plan keeps what --dry-run has planned.", hint="Give --dry-run too.")
    target = check_target(to) if plan is None else _of_plan(plan, to, call)
    from_ts, to_ts = instant(from_time), instant(to_time)
    if from_ts is not None and to_ts is not None and from_ts >= to_ts:
        raise UsageProblem("--from-time is not before --to-time, so nothing lies between them.")
    if backup and (to_ts is not None or select is not None):
        raise UsageProblem(
            f"--backup and --{'select' if select else 'to-time'} exclude each other.",
            hint="Give one of them: each says up to where to restore.",
        )
    request = RestoreRequest(
        **shared,
        topics=tuple(topics or ()),
        patterns=tuple(pattern or ()),
        maps=maps,
        to_ts=to_ts,
        from_ts=from_ts,
        backup=backup,
        select=select,
        partial=partial,
        target=target,
        append=append,
        continued=continue_,
        groups=tuple(groups or ()),
        repartition=repartition,
        partitions=partitions,
        allow_gaps=allow_gaps,
        approximate=approximate,
        settings=settings,
        zero_as_one=zero_timestamps_as_one,
        save_plan=save_plan,
        plan=plan,
    )
    result = call.result_of(run, request)
    if call.explain:
        return
    refused, hint = result.pop("refused", None), result.pop("hint", "")
    # The SQL is what --explain is for.
    call.report.result({k: v for k, v in result.items() if k not in ("selection", "parameters")})
    if refused:
        raise Refused(refused, hint=hint)


def _of_plan(plan: str, to: str | None, call: Call) -> str:
    """The target of a saved plan. Raises UsageProblem when flags say what the plan says."""
    from lakebackup.plan.topics import saved

    twice = [name for name in call.given if name not in ("to", "plan", "save-plan")]
    twice += ["source"] if call.flags["source"] else []
    if twice:
        raise UsageProblem(
            f"--plan says already what to restore and how; it excludes {', '.join(twice)}.",
            hint="Leave them out, or plan once more.",
        )
    target: str = saved.read(Path(plan)).request["target"]
    if to is not None and to != target:
        raise UsageProblem(f"The plan is one into {target}, not into {to}.", hint="Leave --to out.")
    return target
