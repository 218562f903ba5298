"""`lakebackup log start`: start a log task."""

from __future__ import annotations

from typing import Any, Literal

from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.flags.values import required, size, span
from lakebackup_jobs.cli.log import common
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.logs.control import verbs as control
from lakebackup_jobs.logs.task import TaskSettings


@verb(options.REPO, options.KAFKA_SERVERS, options.LEASE, options.BANDWIDTH, options.CLUSTER)
def start(
    call: Call,
    name: str = common.NAME,
    pattern: list[str] | None = options.PATTERN,
    feed: Literal["br", "debezium"] = option(
        "--feed",
        "Format of the events. br: a key-value store's, below transactions. debezium: of its connectors.",
        "br",
    ),
    filters: list[str] | None = option(
        "-f --filter RULE",
        "Tables as db.name, with * and ?; repeatable. !… excludes, and the last match decides.",
    ),
    lastbackupts: int | None = option("--startts TS", "Only changes committed after this ts.", min=0),
    endts: int | None = option(
        "--endts TS", "Only changes committed up to this ts. The task is complete there.", min=0
    ),
    flush_every: str = option("--flush-every SPAN", "Store events after this time at the latest.", "5min"),
    flush_bytes: str = option(
        "--flush-bytes SIZE", "Store events when about this many bytes are waiting.", "128MiB"
    ),
    codec: Literal["zstd", "lz4", "none"] = option(
        "--codec CODEC", "Codec of data files. zstd, lz4 or none.", "zstd"
    ),
    encrypt: bool = option(
        "--encrypt/--no-encrypt",
        "Without recipients: encrypt log files with the current key of [log] keys_file.",
        False,
    ),
    unavailable_value: str | None = option(
        "--unavailable-value TEXT",
        "Debezium's unavailable.value.placeholder, if the connector does not use the default. It stands "
        "for large values that the database left out.",
    ),
    allow_gaps: bool = switch(
        "--allow-gaps",
        "Continue even if some data was never backed up. The feed lost events that were not read yet.",
    ),
    no_run: bool = common.NO_RUN,
    metrics_port: int | None = common.METRICS_PORT,
) -> None:
    r"""Start capturing a change feed, or resume a stopped task. The job runs on this machine.

    The job keeps running after this command ends, and writes to a log file that the command names. If the job
    ends by itself, run the same command to start it again.

    Examples:
        lakebackup log start prod --bootstrap-server localhost:9092 --pattern tikv-changes --repo ./backups
        lakebackup log start shop --bootstrap-server localhost:9092 --feed debezium
            --pattern 'shop\..*' --repo s3://b/log -f 'public.*' -f '!public.tmp_*' --encrypt
    """
    repo, bootstrap = call.repository, call.kafka["bootstrap.servers"]
    topics = required(pattern, "--pattern", "in which topics is the feed?", hint="Give --pattern REGEX.")
    task = call.request(
        TaskSettings,
        bootstrap=bootstrap,
        topics=tuple(topics),
        flush_every_s=(span("--flush-every", flush_every) or 1) / 1000,
        flush_bytes=size("--flush-bytes", flush_bytes) or 1,
    )
    CatalogWriter(None, repo, call.settings.catalog).migrate()
    environment = common.place_of(call, run=not no_run, metrics_port=metrics_port)
    newest = environment.reader().first_row("log_newest", source=name)
    start_ts = newest["end_ts"] if newest else lastbackupts
    beginning = "the start of the feed" if start_ts is None else f"ts={start_ts}"

    def outcome(status: Any) -> str:
        if status["detail"]:
            return f"Started, then paused: {status['detail']}"
        return "Started!" + (f" Its log: {status['log']}" if status["log"] else "")

    message = f"Starting task {name} from {beginning}..."
    common.progress(message, call.json, lambda: control.start(environment, name, task), outcome)
