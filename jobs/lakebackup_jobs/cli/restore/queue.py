"""`lakebackup restore queue`: restore an engine's snapshot, configuration and queues."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup.plan.queues.restore import QueueRestoreRequest
from lakebackup.rules.patterns import parse_maps
from lakebackup_jobs.cli.backup.queue import header_names
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import check_folder, instant, required
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.queues.restore.job import run


@verb(
    options.REPO,
    options.PLAN,
    options.ENGINE,
    options.KAFKA_CLIENT,
    options.BANDWIDTH,
    options.ANY_RUNNER,
    options.LEASE,
)
def queue(
    call: Call,
    source: str = argument(
        "GRAPH", "The engine's name, its source's.", ..., autocompletion=completion.sources
    ),
    to: str | None = option("--to TARGET", "Where the data goes. kafka://HOST:PORT[,HOST:PORT]."),
    into: str | None = option(
        "--into FOLDER",
        "An empty folder for snapshot/, config.yaml and delta_schema_history.yaml.",
    ),
    backup: str | None = option(
        "--backup ID",
        "Up to the end of this backup. Also one of a history that the engine was put back from.",
        show_default="the newest of its history",
        autocompletion=completion.backups,
    ),
    to_tid: int | None = option(
        "--to-tid TID", "Restore everything up to this tid, and nothing after it.", min=0
    ),
    to_ts: int | None = option(
        "--to-time TIME",
        "Up to and including this time. The last tid before which no message is later than it. "
        + options.TIMES,
        parser=instant,
    ),
    map_: list[str] | None = option("--map OLD=NEW", "Another name for a topic; repeatable."),
    append: bool = switch(
        "--append",
        "Allow target topics that already hold records. Such as the engine's own queues: watermark and "
        "messages come "
        "behind what they hold. Stop the engine and all that writes to its queues first.",
    ),
    keep_open: bool = switch(
        "--keep-open", "Also restore messages of transactions that are open at that point."
    ),
    settings: options.TopicSettings = options.TOPIC_SETTINGS,
    zero_as_one: bool = options.ZERO_TIMESTAMPS_AS_ONE,
) -> None:
    """Restore an engine: its snapshot and configuration into a folder, its messages into its queues.

    Each partition gets a watermark message and then its messages in order, up to the same tid in all queues.
    If it is interrupted, run the same command again to resume it. The next backup of these queues continues
    from what was restored.

    Examples:
        lakebackup restore queue social --repo ./backups --to kafka://localhost:9092 --into ./restored
        lakebackup restore queue social --to kafka://localhost:9092 --into ./restored --append --to-tid 1300
        lakebackup restore queue social --to kafka://other:9092 --into ./drill --to-time 14:05 --dry-run
        lakebackup restore queue social --to kafka://localhost:9092 --into ./drill --map delta.0=drill.delta.0
    """
    maps = parse_maps(map_ or ())
    target = required(to, "--to", "where do the messages go?", hint="Give --to kafka://HOST:PORT.")
    folder = check_folder("--into", into, "where does the snapshot go?")
    if to_tid is not None and to_ts is not None:
        raise UsageProblem("--to-tid and --to-time exclude each other.", hint="Each says up to where.")
    request = call.request(
        QueueRestoreRequest, target=target, folder=folder, maps=maps, names=header_names(call.settings)
    )
    call.run(run, request)
