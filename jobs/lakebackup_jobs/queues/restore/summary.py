"""The results of an engine's restore: rows of the catalog with its positions, warnings, and a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lakebackup.plan.queues.restore import EngineState, Queue, QueueRestorePlan
from lakebackup.rows.queues import QueueRestore
from lakebackup.rules import layout
from lakebackup.rules.times import format_ts
from lakebackup.storage import working
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.queues.restore.restore_state import (
    CompletedRestore,
    Prepared,
    RestoreState,
    TopicsBefore,
)


def publish(
    reader: CatalogReader,
    writer: CatalogWriter,
    state: RestoreState,
    prepared: Prepared,
    completed: CompletedRestore,
) -> None:
    """Record once in the catalog where the messages are.

    An earlier run may have been interrupted while it did so. Backups since did not see its rows, so the
    restore is recorded with the present time.
    """
    if reader.rows("queue_restored", restore_id=state.restore_id):
        return
    name, published_at = f"queue-restore-{state.restore_id}", micros(datetime.now(UTC))
    rows = [
        # The next backup of these queues continues from these rows.
        QueueRestore(
            restore_id=state.restore_id,
            at=published_at,
            actor=holder(),
            source=prepared.source,
            backup_id=prepared.backup_id,
            full_id=prepared.full_id,
            whole=is_whole(prepared, completed),
            last_tid=prepared.to_tid,
            cluster=prepared.cluster,
            scope=topic,
            epoch=prepared.epochs[topic],
            region=str(partition),
            base_position=base,
            end_position=completed.ends[topic][partition],
        )
        for topic, bases in completed.bases.items()
        for partition, base in enumerate(bases)
    ]
    if completed.at is not None:
        audits = [layout.audit_path(completed.at, f"{name}-{number:06d}") for number in range(len(rows))]
        working.delete(state.storage, audits)
    state.write(replace(completed, at=published_at))
    writer.record_once(rows, name)


def warnings_of(completed: CompletedRestore) -> Iterator[str]:
    """Yield a warning for each partition with offsets that are not the restore's."""
    for topic, counts in completed.others.items():
        for partition, count in enumerate(counts):
            if count:
                yield (
                    f"topic {topic}, partition {partition}: {abs(count)} offsets among what was restored are "
                    "from another writer, or from an interrupted run: the next backup depends on the full, "
                    "with all of it"
                )


def is_whole(prepared: Prepared, completed: CompletedRestore) -> bool:
    """Return whether backups may continue from the restored backup where the restored messages end.

    They may not when messages of another writer are among these, since the backups would lack them.
    """
    return prepared.whole and not any(map(any, completed.others.values()))


def done_of(rows: Iterable[Any], prepared: Prepared) -> CompletedRestore:
    """Return what is recorded of a completed restore, from the rows (REPLAYED) of its tasks."""
    rows_by_partition = {(row.scope, int(row.region)): row for row in rows}

    def column(name: str) -> dict[str, list[int]]:
        return {
            topic: [getattr(rows_by_partition[topic, partition], name) for partition in range(len(bases))]
            for topic, bases in prepared.bases.items()
        }

    return CompletedRestore(column("base"), column("position"), column("others"))


def suspended(state: RestoreState) -> str:
    """Return a hint about the suspended settings of topics that existed before, for a run that failed."""
    topics_before = state.read(TopicsBefore)
    topics = (
        [topic for topic, former in topics_before.topics.items() if former.epoch is not None]
        if topics_before
        else []
    )
    if not topics:
        return ""
    return (
        f"Retention of {', '.join(topics)} is suspended (retention.ms=-1 and others) until the same command "
        "has finished; set it yourself if you give up the restore."
    )


def summary(plan: QueueRestorePlan) -> dict[str, Any]:
    return {
        **_state(plan, backups=list(plan.restore_path.backup_ids)),
        "files": plan.files,
        "bytes": plan.bytes,
        "entries_in_files": plan.entries,
        "config": [file.name for file in plan.config],
    }


def result(prepared: Prepared) -> dict[str, Any]:
    return {
        **_state(prepared),
        "open_transactions": prepared.open_transactions,
        "open_ids": prepared.open_ids,
        "bytes": prepared.bytes,
        "queues": [of_queue(queue) for queue in prepared.queues],
    }


def _state(state: EngineState, **backups: Any) -> dict[str, Any]:
    return {
        "source": state.source,
        "full": state.full_id,
        "snapshot": state.snapshot_id or None,
        **backups,
        "backup_id": state.backup_id,
        "whole": state.whole,
        "first_tid": state.first_tid,
        "to_tid": state.to_tid,
        "to_time": format_ts(state.to_ts) if state.to_ts is not None else None,
    }


def of_queue(queue: Queue) -> dict[str, Any]:
    return {
        "queue": queue.scope,
        "target": queue.target,
        "partitions": queue.regions,
        "files": queue.files,
        "bytes": queue.bytes,
        "entries_in_files": queue.entries,
    }
