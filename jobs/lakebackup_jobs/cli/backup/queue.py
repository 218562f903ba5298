"""`lakebackup backup queue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.verb import Call, verb

if TYPE_CHECKING:
    from lakebackup.config import Settings
    from lakebackup.formats.queues.headers import HeaderNames

_WHAT, _MESSAGES = "What belongs to the engine", "Messages"

EXAMPLES = options.examples(
    "lakebackup backup queue social --snapshot /data/social/snapshot --topics 'delta.*' --topics 'journal.*' "
    "--config config.yaml --schema delta_schema_history.yaml --mode full --to ./backups",
    "lakebackup backup queue social --topics 'delta.*' --topics 'journal.*' --config config.yaml "
    "--schema delta_schema_history.yaml --mode differential --to ./backups",
    "lakebackup backup queue social --topics 'delta.*' --to ./backups --dry-run",
)


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
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="The engine's name, and its source's in the catalog.")
    ],
    topics: Annotated[
        list[str],
        typer.Option(
            "--topics",
            metavar="PATTERN",
            help="Its queues, all of them each time: names or shell patterns such as 'delta.*'; repeatable.",
            rich_help_panel=_WHAT,
        ),
    ],
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="For a full: the folder of a snapshot, there on each worker.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="For a full: where the snapshot stands in the queues.",
            show_default="PATH/../snapshot.json; without it, where the queues end",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The engine's config.yaml, kept with each backup.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="Its delta_schema_history.yaml, kept with each backup.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    mode: Annotated[
        Literal["full", "differential", "incremental", "auto"],
        typer.Option(
            help="full: the snapshot, and where it stands. differential: everything since the last full. "
            "incremental: since the last backup. auto: incremental, or full when there is none.",
        ),
    ] = "auto",
    tid_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Header of the tid.", show_default="tid", rich_help_panel=_MESSAGES
        ),
    ] = None,
    tid_format: Annotated[
        Literal["text", "int64"] | None,
        typer.Option(
            metavar="text|int64",
            help="Decimal digits, or 8 bytes, most significant first.",
            show_default="text",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    transaction_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Header of the transaction's id.",
            show_default="transaction",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    kind_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Header that says begin, write, commit or rollback.",
            show_default="kind",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    skip_message: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[PARTITION]@OFFSET",
            help="Leave out a message that cannot be understood, also of later backups; repeatable. "
            "It is recorded in the audit log.",
            rich_help_panel=_MESSAGES,
        ),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many tasks are to work at once.",
            show_default="processors",
            rich_help_panel=options.COPYING,
        ),
    ] = None,
) -> None:
    """Back up an engine: a full of its snapshot, and from then on the messages of its queues.

    What was purged or reset before it was backed up ends with exit code 9: then a new full is needed, which
    is never taken unasked. --config is the engine's file here; lakebackup's own is --settings.
    """
    call.override(
        queue_tid_header=tid_header,
        queue_tid_format=tid_format,
        queue_transaction_header=transaction_header,
        queue_kind_header=kind_header,
    )
    from lakebackup_jobs.queues.backup.job import run
    from lakebackup_jobs.queues.backup.request import QueueRequest

    tasks: dict[str, Any] = {"parallelism": parallelism} if parallelism is not None else {}
    request = QueueRequest(
        **call.fields(QueueRequest),
        **tasks,
        source=graph,
        topics=tuple(topics),
        mode=mode,
        snapshot=snapshot,
        positions=positions,
        config=config,
        schema=schema,
        names=header_names(call.settings),
        skip=tuple(skip_message or ()),
    )
    call.run(run, request)


def header_names(found: Settings) -> HeaderNames:
    """The headers of an engine's messages, by the settings."""
    from lakebackup.formats.queues.headers import HeaderNames

    return HeaderNames(
        tid=found.queue_tid_header,
        transaction=found.queue_transaction_header,
        kind=found.queue_kind_header,
        tid_format=found.queue_tid_format,
    )
