"""`lakebackup restore groups`."""

from __future__ import annotations

from lakebackup.rules.patterns import GROUP, parse_maps
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import check_target, instant
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.topics.groups import GroupsRequest, run


@verb(options.REPO, options.PLAN, options.KAFKA_CLIENT, options.SOURCE, waits="planning")
def groups(
    call: Call,
    groups: list[str] | None = argument("GROUP", "Groups by name."),
    to: str | None = option("--to TARGET", "Where the data goes. kafka://HOST:PORT[,HOST:PORT]."),
    patterns: list[str] | None = option(
        "--group-pattern REGEX", "Consumer groups whose whole name matches; repeatable."
    ),
    map_: list[str] | None = option(
        "--map OLD=NEW",
        "Another name for a topic; repeatable. The one that OLD was restored into, if several.",
    ),
    map_group: list[str] | None = option("--map-group OLD=NEW", "Another name for a group; repeatable."),
    at_ts: int | None = option(
        "--to-time TIME",
        "Up to and including this time. Where they stood then, as far as backups know.",
        show_default="the last backup",
        parser=instant,
    ),
    from_log: bool = switch(
        "--from-log",
        "Use the last offsets in __consumer_offsets, including those of topics deleted since.",
    ),
    force: bool = switch("--force", "Also reset groups that are further ahead in the target."),
) -> None:
    """Restore the offsets of consumer groups, for topics that `restore topics` restored.

    The old offsets are translated to the restored topics. Each partition of each group has one of these
    outcomes: moved, unchanged, at_end, in_gap, ahead, active, unknown, not_restored, topic_deleted. It is
    safe to run this again.

    Examples:
        lakebackup restore groups --group-pattern '.*' --repo ./backups --to kafka://localhost:9092 --dry-run
        lakebackup restore groups billing --to kafka://localhost:9092 --map orders=orders2 --to-time 14:05
    """
    request = call.request(
        GroupsRequest,
        target=check_target(to),
        maps=parse_maps(map_ or ()),
        group_maps=parse_maps(map_group or (), kind=GROUP),
    )
    call.run(run, request, spark=False)
