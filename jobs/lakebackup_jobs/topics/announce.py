"""What a backup of topics reports: its plan, before it copies anything, and topics that are unprotected."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from lakebackup.plan.topics.backup import BackupPlan
from lakebackup.rows.backups import Position
from lakebackup.rows.topics import NO_TOPIC, TopicSeen
from lakebackup.rules.patterns import compile_pattern, is_internal, owned_patterns
from lakebackup.rules.times import format_ts
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.topics import forks

_NEW_GENERATION = {
    "asked": "as asked",
    "growth": "the backup holds much that the topic has dropped",
    "tombstones": "it was not read for so long that tombstones may be gone",
    "purged": "records were deleted before their backup",
}


def announce(
    plan: BackupPlan, reporter: Reporter, *, reported: Collection[tuple[str, str, int]] = ()
) -> None:
    """Report forks, gaps and open transactions of the source, the choice of the parent, and new generations.

    `reported`: (topic, partition, offset) of open transactions that were reported before.
    """
    if plan.fork:
        reporter.warning(forks.report(plan.fork))
    for warning in plan.warnings:
        reporter.warning(warning)
    for note in plan.notes:
        reporter.note(note)
    for gap in plan.gaps:
        if gap.reason == "purged":
            detail = f"offsets [{gap.from_position}, {gap.to_position}) were deleted before their backup"
        else:
            detail = f"the topic was deleted and recreated; offsets from {gap.from_position} are unknown"
        reporter.warning(f"topic {gap.scope}, partition {gap.region}: {detail}")
    for position in plan.long_open:
        if (position.scope, position.region, position.end_position) in reported:
            continue
        reporter.warning(
            f"{_open_transaction_text(position)}. No backup contains them until the transaction ends. "
            "`kafka-transactions.sh abort` ends a transaction that hangs"
        )
    for scope, generation in plan.restarted:
        reason = _NEW_GENERATION[generation.anew or "asked"]
        reporter.note(f"topic {scope} starts generation {generation.number}: {reason}")


def _open_transaction_text(position: Position) -> str:
    since = position.open_since
    first = "without a time" if since is None or since < 0 else f"of {format_ts(since)}"
    return (
        f"topic {position.scope}, partition {position.region}: the backup ends at offset "
        f"{position.end_position}, because a transaction is open there (its first record is {first}); that "
        f"record and {position.high_position - position.end_position - 1} offsets after it are left out"
    )


def warn_of_missed_tombstones(plan: BackupPlan, reporter: Reporter) -> None:
    """Warn, after the copy, of compacted topics that were not read to their end in time."""
    for scope in plan.missed_tombstones(micros(datetime.now(UTC)) // 1000):
        reporter.warning(
            f"topic {scope}: it was not read to its end within its delete.retention.ms, so a deleted key may "
            "come back in a restore. The next backup reads the topic from its start; back it up more often, "
            "or raise the setting"
        )


def summary(plan: BackupPlan, source: str) -> dict[str, Any]:
    """The summary of a plan, for the run's result."""
    return {
        "source": source,
        "kind": plan.kind,
        "level": plan.level,
        "parent": plan.parent.backup_id if plan.parent else None,
        "topics": len(plan.scopes),
        "partitions": len(plan.positions),
        "offsets": plan.offsets,
        "end_ts": plan.end_ts,
        "gaps": len(plan.gaps),
        "fork": forks.describe(plan.fork) if plan.fork else None,
        "groups": len({row.group_id for row in plan.groups if row.scope != NO_TOPIC}),
        "generations": [
            {"topic": scope, "generation": g.number, "because": g.anew} for scope, g in plan.restarted
        ],
        "open_transactions": [_open_transaction_text(p) for p in (*plan.long_open, *plan.in_flight)],
        "left_out": list(plan.left_out),
    }


def record_unprotected(
    reader: CatalogReader,
    writer: CatalogWriter,
    source: str,
    existing: Collection[str],
    read_topics: Collection[str],
) -> list[str]:
    """Record the unprotected topics of a cluster, if they changed, and return them, sorted.

    A topic is unprotected when neither this backup (`read_topics`) nor an earlier one has it, and no pattern
    of the source's policy matches it. The view unprotected_topics shows them.
    """
    backed_up = {row["scope"] for row in reader.rows("held_topics", source=source)}
    topics = set(existing) - set(read_topics) - backed_up
    return _record_seen(reader, writer, source, (topic for topic in topics if not is_internal(topic)))


def forget_owned(reader: CatalogReader, writer: CatalogWriter, source: str) -> None:
    """Record that topics which the source's policy matches now are protected: its next run backs them up."""
    _record_seen(reader, writer, source, [row["scope"] for row in reader.rows("topics_seen", source=source)])


def _record_seen(
    reader: CatalogReader, writer: CatalogWriter, source: str, topics: Iterable[str]
) -> list[str]:
    """Record those of the topics that no pattern of the source's policy matches, if they changed. Returns
    them, sorted."""
    owned = [compile_pattern(pattern) for pattern in owned_patterns(reader, source)]
    unprotected = sorted(
        topic for topic in topics if not any(expression.fullmatch(topic) for expression in owned)
    )
    if unprotected != [row["scope"] for row in reader.rows("topics_seen", source=source)]:
        time_us = time.time_ns() // 1000
        writer.append([TopicSeen(source=source, at=time_us, scope=topic) for topic in unprotected or [""]])
    return unprotected
