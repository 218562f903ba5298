"""`lakebackup backup topics`."""

from __future__ import annotations

import threading
from typing import Any, Literal

from lakebackup.errors import LakebackupError, UsageProblem
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import span
from lakebackup_jobs.cli.interrupt import stopped_by_signals
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.topics.backup import run
from lakebackup_jobs.topics.follow import follow
from lakebackup_jobs.topics.request import BackupRequest
from lakebackup_jobs.upkeep.policies import approve_topics

OnGap = Literal["restart", "full", "continue", "fail"]
OnFork = Literal["branch", "fail"]
Isolation = Literal["read_committed", "read_uncommitted"]
ModeName = Literal["auto", "full", "incr-diff", "incr-accu", "diff", "accu"]

# Short names of modes.
_MODES = {"diff": "incr-diff", "accu": "incr-accu"}


@verb(
    options.REPO,
    options.DATA_FILES,
    options.PLAN,
    options.KAFKA_SERVERS,
    options.BANDWIDTH,
    options.ANY_RUNNER,
    options.SOURCE,
    options.LEASE,
    options.NOTE,
)
def topics(
    call: Call,
    topics: list[str] | None = argument("TOPIC", "Topics by name.", autocompletion=completion.topics),
    patterns: list[str] | None = options.PATTERN,
    mode: ModeName | None = option(
        "--mode MODE",
        "How much to back up. full: everything. "
        "incr-diff: what is new since the latest backup of its level or below. "
        "incr-accu: since the latest of a level below. auto: incr-diff. The first is always a full.",
        show_default="auto",
    ),
    level: int | None = option(
        "--level N", "Level of an incremental backup; a full is level 0.", show_default="1"
    ),
    parent: str | None = option(
        "--parent ID", "The backup to continue from.", autocompletion=completion.backups
    ),
    on_gap: OnGap = option(
        "--on-gap",
        "What to do if records were deleted before they were backed up: read their topic from its "
        "beginning again, take a full of all topics, continue, or stop.",
        "restart",
    ),
    on_fork: OnFork = option(
        "--on-fork",
        "What to do if the source lost records that were backed up: continue from the last backup "
        "without them and mark later ones out of sync, or stop.",
        "branch",
    ),
    new_generation: bool = switch(
        "--new-generation",
        "Read compacted topics from their beginning again, without records that they dropped since.",
    ),
    groups: Literal["all", "none"] | None = option(
        "--groups all|none",
        "Also save the committed offsets of consumer groups, and the topic __consumer_offsets.",
        show_default="all",
    ),
    isolation: Isolation | None = option(
        "--isolation LEVEL",
        "read_committed, or read_uncommitted: records of open and aborted transactions too.",
        show_default="read_committed",
    ),
    roll: str | None = option(
        "--roll SPAN",
        "Close a data file when its records span this long: 6h; never.",
        show_default="a tenth of the topic's retention.ms",
        panel=options.DATA_FILES_PANEL,
    ),
    follow: bool = switch("--follow", "Keep running and back up new records continuously."),
    every: str = option("--every SPAN", "With --follow: how often to look for new records.", "10s"),
) -> None:
    r"""Back up Kafka topics: everything the first time, then only new records.

    It stops at the offsets where the topics ended when it started. With --follow it keeps running until
    Ctrl-C or SIGTERM, and finishes the current batch first. Each batch is a backup.

    Examples:
        lakebackup backup topics orders payments --bootstrap-server localhost:9092 --repo ./backups
        lakebackup backup topics --pattern 'app\..*' --repo ./backups --note 'before the upgrade'
        lakebackup backup topics orders --repo ./backups --kafka-config client.properties --dry-run
        lakebackup backup topics orders --repo ./backups --mode incr-accu --level 1
    """
    if follow and call.dry_run:
        preview = "--explain" if call.explain else "--dry-run"
        raise UsageProblem(f"--follow and {preview} exclude each other.", hint="Give one of them.")
    settings = call.override(
        groups=groups, isolation=isolation, mode=_MODES.get(mode or "", mode), level=level, roll=roll
    )
    if follow:
        call.start_jvm(sql=True)
    request = call.request(
        BackupRequest,
        topics=tuple(topics or ()),
        isolation=settings.isolation,
        roll_ms=None if settings.roll is None else round(settings.roll * 1000),
        mode=settings.mode,
        # A level from a settings file is for incremental backups, so --mode full ignores it.
        level=level if mode == "full" else settings.level,
        growth=settings.generation_growth,
        groups=settings.groups,
    )
    if follow:
        result = _follow(call, request, every)
        call.report.result(result)
    else:
        result = call.run(run, request)
    if not call.dry_run:
        _approve_topics(call, result["source"])


def _approve_topics(call: Call, source: str) -> None:
    """Approve the source's new topics, so that `due --run` on this machine backs them up too."""
    try:
        approve_topics(CatalogReader.require(*call.repository_and_catalog), source)
    except LakebackupError as problem:  # the backup itself succeeded
        call.warn(f"`due --run` will not take further topics here: {problem.message} {problem.hint or ''}")


def _follow(call: Call, request: BackupRequest, every: str) -> dict[str, Any]:
    """Follow the topics until SIGINT or SIGTERM. A second signal interrupts the batch."""
    stop = threading.Event()
    with stopped_by_signals(stop, "Stops after this batch; Ctrl-C again interrupts it."):
        every_s = (span("--every", every) or 0) / 1000
        with call.results_of_failures():
            return follow(request, every_s=every_s, stop=stop, spark=call.spark(), reporter=call.report)
