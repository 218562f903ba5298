"""`lakebackup log start`: begin a log task."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.log import shown
from lakebackup_jobs.cli.options import option
from lakebackup_jobs.cli.values import required, size, span
from lakebackup_jobs.cli.verb import Call, verb

EXAMPLES = options.examples(
    "lakebackup log start prod --source kafka://localhost:9092 --topic tikv-changes --to ./backups",
    "lakebackup log start shop --source kafka://localhost:9092 --feed debezium --topic shop --to s3://b/log "
    "-f 'public.*' -f '!public.tmp_*' --flush-every 1min --encrypt",
)
_SCHEME = "kafka://"


@verb(options.TO, options.KAFKA_CLIENT, options.LEASE, options.CLUSTER)
def start(
    call: Call,
    name: shown.Name,
    source: Annotated[str | None, option("--source kafka://HOST:PORT,…", "The feed's brokers.")] = None,
    topic: Annotated[
        list[str] | None, option("--topic REGEX", "Topics of the feed whose whole name matches; repeatable.")
    ] = None,
    feed: Annotated[
        Literal["br", "debezium"], option("--feed", "What the events are: docs/change-logs.md.")
    ] = "br",
    filters: Annotated[
        list[str] | None,
        option(
            "-f --filter RULE",
            "Tables as db.name, with * and ?; !… leaves out; the last that fits decides; repeatable.",
        ),
    ] = None,
    lastbackupts: Annotated[
        int | None, option("--lastbackupts TS", "What was committed up to then is not captured.", min=0)
    ] = None,
    endts: Annotated[int | None, option("--endts TS", "The task is complete then.", min=0)] = None,
    flush_every: Annotated[
        str, option("--flush-every SPAN", "How old what is not stored may become.")
    ] = "5min",
    flush_bytes: Annotated[str, option("--flush-bytes SIZE", "Flush when about so much waits.")] = "128MiB",
    codec: Annotated[Literal["zstd", "lz4", "none"], option("--codec", "Of log files.")] = "zstd",
    encrypt: Annotated[
        bool, option("--encrypt", "Encrypt log files with the current key of \\[log] keys_file.")
    ] = False,
    allow_gaps: Annotated[
        bool, option("--allow-gaps", "Go on where the feed lost events before they were read.")
    ] = False,
    no_run: shown.NoRun = False,
    metrics_port: shown.MetricsPort = None,
) -> None:
    """Begin to capture a change feed, or go on with a task that was stopped; its job is started here.

    It goes on when this command has ended, and prints into a file that is named. One that ended by itself is
    started again by the same command.
    """
    where, found, hint = call.where, call.settings, "Give --source kafka://HOST:PORT."
    if source and not source.startswith(_SCHEME):
        raise UsageProblem(f"--source {source!r} is not the address of a feed.", hint=hint)
    servers = (source or "").removeprefix(_SCHEME) or found.kafka.get("bootstrap.servers")
    bootstrap = required(servers, "--source", "where is the feed?", hint=hint)
    topics = required(topic, "--topic", "in which topics is the feed?", hint="Give --topic NAME.")
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.logs.control import verbs as control
    from lakebackup_jobs.logs.task import TaskSettings

    wanted = call.request(
        TaskSettings,
        bootstrap=bootstrap,
        topics=tuple(topics),
        flush_every_s=(span(flush_every) or 1) / 1000,
        flush_bytes=size("--flush-bytes", flush_bytes) or 1,
    )
    CatalogWriter(None, where, found.catalog).migrate()
    place = shown.place_of(call, run=not no_run, metrics_port=metrics_port)
    newest = place.reader().one("log_newest", source=name)
    first = newest["end_ts"] if newest else lastbackupts
    begins = "what the feed has" if first is None else f"ts={first}"

    def ended(found: Any) -> str:
        if found["detail"]:
            return f"Started, and paused itself: {found['detail']}"
        return "Started!" + (f" Its log: {found['log']}" if found["log"] else "")

    doing = f"Starting task {name} from {begins}..."
    shown.progress(doing, call.json, lambda: control.start(place, name, wanted), ended)
