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
from lakebackup_jobs.queues.restore.restore_state import Done, Prepared, RestoreState, TopicsBefore


def publish(
    reader: CatalogReader, writer: CatalogWriter, state: RestoreState, made: Prepared, done: Done
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
            source=made.source,
            backup_id=made.backup_id,
            full_id=made.full_id,
            whole=is_whole(made, done),
            last_tid=made.to_tid,
            cluster=made.cluster,
            scope=topic,
            epoch=made.epochs[topic],
            region=str(partition),
            base_position=base,
            end_position=done.ends[topic][partition],
        )
        for topic, bases in done.bases.items()
        for partition, base in enumerate(bases)
    ]
    if done.at is not None:
        audits = [layout.audit_path(done.at, f"{name}-{number:06d}") for number in range(len(rows))]
        working.delete(state.storage, audits)
    state.write(replace(done, at=published_at))
    writer.record_once(rows, name)


def warnings_of(done: Done) -> Iterator[str]:
    """Yield a warning for each partition with offsets that are not the restore's."""
    for topic, counts in done.others.items():
        for partition, count in enumerate(counts):
            if count:
                yield (
                    f"topic {topic}, partition {partition}: {abs(count)} offsets among what was restored are "
                    "from another writer, or from an interrupted run: the next backup depends on the full, "
                    "with all of it"
                )


def is_whole(made: Prepared, done: Done) -> bool:
    """Return whether backups may continue from the restored backup where the restored messages end.

    They may not when messages of another writer are among these, since the backups would lack them.
    """
    return made.whole and not any(map(any, done.others.values()))


def done_of(rows: Iterable[Any], made: Prepared) -> Done:
    """Return what is recorded of a completed restore, from the rows (REPLAYED) of its tasks."""
    rows_by_partition = {(row.scope, int(row.region)): row for row in rows}

    def column(name: str) -> dict[str, list[int]]:
        return {
            topic: [getattr(rows_by_partition[topic, partition], name) for partition in range(len(bases))]
            for topic, bases in made.bases.items()
        }

    return Done(column("base"), column("position"), column("others"))


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


def summary(made: QueueRestorePlan) -> dict[str, Any]:
    return {
        **_state(made, backups=list(made.restore_path.backup_ids)),
        "files": made.files,
        "bytes": made.bytes,
        "entries_in_files": made.entries,
        "config": [file.name for file in made.config],
    }


def result(made: Prepared) -> dict[str, Any]:
    return {
        **_state(made),
        "open_transactions": made.open_transactions,
        "open_ids": made.open_ids,
        "bytes": made.bytes,
        "queues": [of_queue(queue) for queue in made.queues],
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
