"""`lakebackup prune`: delete backups and files that no policy or retention keeps."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup.rules.retention import Limits
from lakebackup.rules.times import MOST_DAYS
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import one_of, size, span
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep.prune import PruneRequest, run


@verb(options.REPO, options.PLAN, options.ENGINE, options.SPARK_JOB, options.SOURCE, options.LEASE)
def prune(
    call: Call,
    topics: list[str] | None = argument(
        "DAYS|TOPIC",
        "A recovery window in days instead of the policy's window and redundancy (its other rules still "
        "count), or names of topics.",
        show_default="by policy, and all topics of the newest backup",
    ),
    patterns: list[str] | None = options.PATTERN,
    delete: bool = switch("--delete", "Delete. Without it, only show the plan."),
    keep_time: str | None = option(
        "--keep-time SPAN",
        "Keep records from this long before the newest backup, such as 7d or 12h.",
        show_default="the topic's retention.ms",
    ),
    keep_size: str | None = option(
        "--keep-size SIZE",
        "Keep at least this much of each partition's newest data, such as 10GiB.",
        show_default="the topic's retention.bytes",
    ),
    future: bool = switch(
        "--future",
        "Select backups from the future (taken while a clock was ahead) and what depends on them, "
        "instead of what the policy does not keep.",
    ),
) -> None:
    """Delete backups that the policy does not keep, and files that the topics' retention does not keep.

    Before it deletes anything, it checks that every remaining restore point keeps the files it needs.

    Examples:
        lakebackup prune --repo ./backups
        lakebackup prune --repo ./backups --delete
        lakebackup prune 14 --delete
        lakebackup prune orders --keep-time 30d --keep-size 10GiB --delete
        lakebackup prune --source files --future --delete
    """
    topics, days = _window(topics or [])
    for name in ("dry_run", "explain"):
        one_of({"delete": delete, name.replace("_", "-"): call.flags[name]}, otherwise="")
    for name, value in (("pattern", patterns), ("keep-time", keep_time), ("keep-size", keep_size)):
        one_of({"future": future, name: bool(value)}, otherwise="")
    if future and (topics or days):
        raise UsageProblem(
            "--future deletes backups whole, and takes neither DAYS nor a TOPIC.", hint="Leave it out."
        )
    limits = Limits(span("--keep-time", keep_time), size("--keep-size", keep_size))
    call.notifies = delete
    request = call.request(PruneRequest, topics=tuple(topics), days=days, future=future, limits=limits)
    call.run(run, request, spark=delete)


def _window(arguments: list[str]) -> tuple[list[str], int | None]:
    """The topics, or the days if the only argument is a number. Raises UsageProblem for both together."""
    if not arguments or not (arguments[0].isascii() and arguments[0].isdecimal()):
        return arguments, None
    if len(arguments) > 1:
        raise UsageProblem(
            f"{arguments[0]} is a recovery window for whole backups, and {arguments[1]} is a topic.",
            hint="Give one of them; name a topic whose name is a number by --pattern.",
        )
    days = int(arguments[0])
    if not days:
        raise UsageProblem(
            "The recovery window is 0 days.",
            hint="Give at least 1, or no number to use the policy: lakebackup policy show.",
        )
    if days > MOST_DAYS:
        raise UsageProblem(
            f"The recovery window of {days} days is longer than 100 years.", hint=f"Give {MOST_DAYS} at most."
        )
    return [], days
