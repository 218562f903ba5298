"""`lakebackup backup queue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb

if TYPE_CHECKING:
    from lakebackup.config import Settings
    from lakebackup.formats.queues.headers import HeaderNames

_WHAT, _MESSAGES = "What belongs to the engine", "Messages"


@verb(
    options.TO,
    options.DATA_FILES,
    options.PLAN,
    options.KAFKA_SERVERS,
    options.SPARK_JOB,
    options.LEASE,
    options.NOTE,
    options.CONFIG.but("--settings"),
)
def queue(
    call: Call,
    source: str = argument("GRAPH", "The engine's name, and its source's in the catalog.", ...),
    topics: list[str] = option(
        "--topics PATTERN",
        "Its queues, all of them each time: names or shell patterns such as 'delta.*'; repeatable.",
        ...,
        panel=_WHAT,
    ),
    snapshot: str | None = option(
        "--snapshot PATH", "For a full: the folder of a snapshot, there on each worker.", panel=_WHAT
    ),
    positions: str | None = option(
        "--positions FILE",
        "For a full: where the snapshot stands in the queues.",
        shown="PATH/../snapshot.json; without it, where the queues end",
        panel=_WHAT,
    ),
    config: str | None = option(
        "--config FILE", "The engine's config.yaml, kept with each backup.", panel=_WHAT
    ),
    schema: str | None = option(
        "--schema FILE", "Its delta_schema_history.yaml, kept with each backup.", panel=_WHAT
    ),
    mode: Literal["full", "differential", "incremental", "auto"] = option(
        "--mode",
        "full: the snapshot, and where it stands. differential: everything since the last full. "
        "incremental: since the last backup. auto: incremental, or full when there is none.",
        "auto",
    ),
    tid_header: str | None = option("--tid-header NAME", "Header of the tid.", shown="tid", panel=_MESSAGES),
    tid_format: Literal["text", "int64"] | None = option(
        "--tid-format text|int64",
        "Decimal digits, or 8 bytes, most significant first.",
        shown="text",
        panel=_MESSAGES,
    ),
    transaction_header: str | None = option(
        "--transaction-header NAME", "Header of the transaction's id.", shown="transaction", panel=_MESSAGES
    ),
    kind_header: str | None = option(
        "--kind-header NAME",
        "Header that says begin, write, commit or rollback.",
        shown="kind",
        panel=_MESSAGES,
    ),
    skip: list[str] | None = option(
        "--skip-message TOPIC[PARTITION]@OFFSET",
        "Leave out a message that cannot be understood, also of later backups; repeatable. "
        "It is recorded in the audit log.",
        panel=_MESSAGES,
    ),
    parallelism: int | None = option(
        "--parallelism N", "How many tasks are to work at once.", shown="processors", panel=options.COPYING
    ),
) -> None:
    """Back up an engine: a full of its snapshot, and from then on the messages of its queues.

    What was purged or reset before it was backed up ends with exit code 9: then a new full is needed, which
    is never taken unasked. --config is the engine's file here; lakebackup's own is --settings.

    Examples:
        lakebackup backup queue social --snapshot /data/social/snapshot --topics 'delta.*'
            --topics 'journal.*' --config config.yaml --schema delta_schema_history.yaml --mode full
            --to ./backups
        lakebackup backup queue social --topics 'delta.*' --topics 'journal.*' --config config.yaml
            --schema delta_schema_history.yaml --mode differential --to ./backups
        lakebackup backup queue social --topics 'delta.*' --to ./backups --dry-run
    """
    call.override(
        queue_tid_header=tid_header,
        queue_tid_format=tid_format,
        queue_transaction_header=transaction_header,
        queue_kind_header=kind_header,
    )
    from lakebackup_jobs.queues.backup.job import run
    from lakebackup_jobs.queues.backup.request import QueueRequest

    call.run(run, call.request(QueueRequest, names=header_names(call.settings)))


def header_names(found: Settings) -> HeaderNames:
    """The headers of an engine's messages, by the settings."""
    from lakebackup.formats.queues.headers import HeaderNames

    return HeaderNames(
        tid=found.queue_tid_header,
        transaction=found.queue_transaction_header,
        kind=found.queue_kind_header,
        tid_format=found.queue_tid_format,
    )
