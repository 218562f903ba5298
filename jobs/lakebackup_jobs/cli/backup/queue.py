"""`lakebackup backup queue`."""

from __future__ import annotations

from typing import Literal

from lakebackup.config import Settings
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.queues.backup.job import run
from lakebackup_jobs.queues.backup.request import QueueRequest

_ENGINE, _MESSAGES = "The engine", "Messages"


@verb(
    options.REPO,
    options.DATA_FILES,
    options.PLAN,
    options.KAFKA_SERVERS,
    options.BANDWIDTH,
    options.ANY_RUNNER,
    options.LEASE,
    options.NOTE,
)
def queue(
    call: Call,
    source: str = argument("GRAPH", "The engine's name, which is also the source's in the catalog.", ...),
    topics: list[str] = option(
        "--pattern REGEX",
        options.TOPICS_THAT_MATCH + "All queues of the engine, each time.",
        ...,
        panel=_ENGINE,
    ),
    snapshot: str | None = option(
        "--snapshot-folder FOLDER",
        "For a full: the folder of a snapshot; each worker must see it.",
        panel=_ENGINE,
    ),
    positions: str | None = option(
        "--positions FILE",
        "For a full: the snapshot's positions in the queues.",
        show_default="FOLDER/../snapshot.json, or else the ends of the queues",
        panel=_ENGINE,
    ),
    config: str | None = option(
        "--engine-config FILE", "The engine's config.yaml, stored with each backup.", panel=_ENGINE
    ),
    schema: str | None = option(
        "--engine-schema FILE",
        "The engine's delta_schema_history.yaml, stored with each backup.",
        panel=_ENGINE,
    ),
    mode: Literal["full", "differential", "incremental", "auto"] = option(
        "--mode MODE",
        "How much to back up. full: the snapshot and its positions. "
        "differential: everything since the last full. "
        "incremental: since the last backup. auto: incremental, or full when there is none.",
        "auto",
    ),
    tid_header: str | None = option(
        "--tid-header NAME", "Header with the tid.", show_default="tid", panel=_MESSAGES
    ),
    tid_format: Literal["text", "int64"] | None = option(
        "--tid-format text|int64",
        "Decimal digits, or 8 bytes, most significant first.",
        show_default="text",
        panel=_MESSAGES,
    ),
    transaction_header: str | None = option(
        "--transaction-header NAME",
        "Header with the transaction id.",
        show_default="transaction",
        panel=_MESSAGES,
    ),
    kind_header: str | None = option(
        "--kind-header NAME",
        "Header with begin, write, commit or rollback.",
        show_default="kind",
        panel=_MESSAGES,
    ),
    skip: list[str] | None = option(
        "--skip-message TOPIC[PARTITION]@OFFSET",
        "Skip an unreadable message, in later backups too; repeatable. The audit log records it.",
        panel=_MESSAGES,
    ),
    parallelism: int | None = option(
        "--parallelism N",
        "Number of tasks that run at once.",
        show_default="processors",
        panel=options.COPYING,
    ),
) -> None:
    r"""Back up an engine: first a full of its snapshot, then the messages of its queues.

    Exit code 9: messages were purged, or a queue was reset, before they were backed up. Then take a new full
    with --mode full; lakebackup never does this by itself.

    Examples:
        lakebackup backup queue social --pattern 'delta\..*' --pattern 'journal\..*' --mode full
            --snapshot-folder /data/social/snapshot --engine-config config.yaml
            --engine-schema delta_schema_history.yaml --repo ./backups
        lakebackup backup queue social --pattern 'delta\..*' --pattern 'journal\..*' --mode differential
            --engine-config config.yaml --engine-schema delta_schema_history.yaml --repo ./backups
        lakebackup backup queue social --pattern 'delta\..*' --repo ./backups --dry-run
    """
    call.override(
        queue_tid_header=tid_header,
        queue_tid_format=tid_format,
        queue_transaction_header=transaction_header,
        queue_kind_header=kind_header,
    )
    call.run(run, call.request(QueueRequest, names=header_names(call.settings)))


def header_names(settings: Settings) -> HeaderNames:
    """The names of the messages' headers, from the settings."""
    return HeaderNames(
        tid=settings.queue_tid_header,
        transaction=settings.queue_transaction_header,
        kind=settings.queue_kind_header,
        tid_format=settings.queue_tid_format,
    )
