"""`lakebackup restore topics`."""

from __future__ import annotations

from pathlib import Path

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.topics import saved
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.rules.patterns import parse_maps
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import FILE_TARGETS, TARGETS, check_target, instant
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.topics.restore import run


@verb(
    options.REPO, options.PLAN, options.ENGINE, options.KAFKA_CLIENT, options.BANDWIDTH, options.ANY_RUNNER,
    options.SOURCE, options.LEASE,
)  # fmt: skip
def topics(
    call: Call,
    topics: list[str] | None = argument("TOPIC", "Topics by name.", autocompletion=completion.topics),
    to: str | None = option("--to TARGET", f"Where the data goes. {TARGETS} | {FILE_TARGETS}."),
    patterns: list[str] | None = options.PATTERN,
    to_ts: int | None = option(
        "--to-time TIME",
        f"Up to and including this time. {options.TIMES}",
        parser=instant,
    ),
    from_ts: int | None = option("--from-time TIME", "Only data after this time.", parser=instant),
    backup: str | None = option(
        "--backup ID", "Up to the end of this backup.", autocompletion=completion.backups
    ),
    map_: list[str] | None = option("--map OLD=NEW", "Another name for a topic; repeatable."),
    select: str | None = options.SELECT,
    records: str | None = option(
        "--select-records SQL",
        "Restore the records this SELECT over records('topic') returns: partition, key, value, headers, ts.",
    ),
    partial: bool = switch("--partial", "Allow a --select that leaves gaps in the topics."),
    append: bool = switch("--append", "Allow target topics that already hold records."),
    continued: bool = switch("--continue", "Restore only what earlier restores into these topics did not."),
    groups: list[str] | None = option(
        "--group-pattern REGEX",
        "Consumer groups whose whole name matches; repeatable. After the restore they are put where they "
        "stood.",
    ),
    repartition: bool = switch(
        "--repartition",
        "Allow a different number of partitions. Each record goes to the partition of its key.",
    ),
    partitions: int | None = option(
        "--partitions N", "With --repartition: the number of partitions of a new topic.", min=1
    ),
    allow_gaps: bool = switch("--allow-gaps", "Continue even if some data was never backed up."),
    approximate: bool = switch(
        "--approximate",
        "Allow a time between two backups of a compacted topic. Values replaced before the later backup "
        "are missing.",
    ),
    allow_empty: bool = switch(
        "--allow-empty", "Allow a time before the topic's first record, and restore an empty topic."
    ),
    settings: options.TopicSettings = options.TOPIC_SETTINGS,
    zero_as_one: bool = options.ZERO_TIMESTAMPS_AS_ONE,
    strict_schemas: bool = switch(
        "--strict-schemas",
        "Refuse when an id of a schema that the records use is missing from the target's registry, or means "
        "another schema there.",
    ),
    save_plan: str | None = option("--save-plan FILE", "With --dry-run: save the plan to a file for --plan."),
    plan: str | None = option("--plan FILE", "Run a saved plan, if it is still valid."),
) -> None:
    """Restore Kafka topics to a time: same partitions, order, keys, values, headers and timestamps.

    If the restore can't be exact, lakebackup refuses it, says why, and writes nothing. If it is interrupted,
    run the same command again to resume it.

    --repo is where the backups are, --to is where the records go: topics, a table, a folder, or one new file
    of rows (`csv:`, `parquet:`, or `json:` with one line for each record).

    Examples:
        lakebackup restore topics orders --repo ./backups --to kafka://localhost:9092 --to-time 14:05
        lakebackup restore topics orders --to kafka://localhost:9092 --map orders=before --to-time -2h
        lakebackup restore topics orders --to delta:./orders --dry-run
        lakebackup restore topics orders --to csv:orders.csv --from-time -1d
        lakebackup restore topics --pattern '.*' --group-pattern '.*' --to kafka://localhost:9092
        lakebackup restore topics --to kafka://localhost:9092 --map orders=masked \
            --select-records "SELECT partition, key, replace(value, 'a', '*') AS value FROM records('orders')"
        lakebackup restore topics --to dir:./out --partial --select "SELECT * FROM files WHERE bytes > 0"
    """
    maps = parse_maps(map_ or ())
    if save_plan and (plan or not call.dry_run):
        raise UsageProblem("--save-plan keeps what --dry-run has planned.", hint="Give --dry-run too.")
    target = check_target(to, files=True) if plan is None else _target_of_plan(plan, to, call)
    if from_ts is not None and to_ts is not None and from_ts >= to_ts:
        raise UsageProblem("--from-time is not before --to-time, so nothing lies between them.")
    if backup and (to_ts is not None or select is not None):
        raise UsageProblem(
            f"--backup and --{'select' if select else 'to-time'} exclude each other.",
            hint="Give one of them: each says up to where to restore.",
        )
    request = call.request(RestoreRequest, maps=maps, target=target)
    if request.by_sql:
        call.start_jvm(sql=True)

    result = call.result_of(run, request)
    if call.explain:
        return
    refused, hint = result.pop("refused", None), result.pop("hint", "")
    # Only --explain prints the SQL.
    call.report.result({k: v for k, v in result.items() if k not in ("selection", "parameters")})
    if refused:
        raise Refused(refused, hint=hint)


def _target_of_plan(plan: str, to: str | None, call: Call) -> str:
    """The target of a saved plan. Raises UsageProblem for flags that the plan sets."""
    conflicting_flags = [name for name in call.flags_in_use if name not in ("to", "plan", "save-plan")]
    conflicting_flags += ["source"] if call.flags["source"] else []
    if conflicting_flags:
        raise UsageProblem(
            f"--plan says already what to restore and how; it excludes {', '.join(conflicting_flags)}.",
            hint="Leave them out, or plan once more.",
        )
    target: str = saved.read(Path(plan)).request["target"]
    if to is not None and to != target:
        raise UsageProblem(f"The plan is one into {target}, not into {to}.", hint="Leave --to out.")
    return target
