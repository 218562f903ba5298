"""`lakebackup prune`: delete what no policy and no retention keeps any more."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import one_of, size, span
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM, options.PLAN, options.ENGINE, options.SPARK_JOB, options.SOURCE, options.LEASE)
def prune(
    call: Call,
    topics: list[str] | None = argument(
        "DAYS|TOPIC",
        "A recovery window in days in place of the policy's; or topics by name.",
        shown="by policy, and all topics of the newest backup",
    ),
    patterns: list[str] | None = options.PATTERN,
    delete: bool = switch("--delete", "Do it. Without this, only tell."),
    keep_time: str | None = option(
        "--keep-time SPAN",
        "Keep records this long before the newest backup: 7d, 12h.",
        shown="the topic's retention.ms",
    ),
    keep_size: str | None = option(
        "--keep-size SIZE",
        "Keep at least this much of each partition, the newest: 10GiB.",
        shown="the topic's retention.bytes",
    ),
) -> None:
    """Let go of backups that the policy does not keep, and of files that the topics' own retention does not.

    Before the first object goes, every restore point that stays is shown to keep what it needs.

    Examples:
        lakebackup prune --from ./backups
        lakebackup prune --from ./backups --delete
        lakebackup prune 14 --delete
        lakebackup prune orders --keep-time 30d --keep-size 10GiB --delete
    """
    topics, days = _window(topics or [])
    for shared in ("dry_run", "explain"):
        one_of({"delete": delete, shared.replace("_", "-"): call.flags[shared]}, otherwise="")
    from lakebackup.rules.retention import Limits
    from lakebackup_jobs.upkeep.prune import PruneRequest, run

    limits = Limits(span(keep_time), size("--keep-size", keep_size))
    request = call.request(PruneRequest, topics=tuple(topics), days=days, limits=limits)
    call.run(run, request, spark=delete)


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
