"""What a restore of an engine reports: rows of the catalog with its messages' positions, and a summary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup.rows.queues import QueueRestore
from lakebackup.rules import layout
from lakebackup.rules.times import format_ts
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.queues.restore import restore_state
from lakebackup_jobs.queues.restore.restore_state import Done

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebackup.plan.queues.restore import ConfigFile, Queue, QueueRestorePlan, QueueRestoreRequest
    from lakebackup.storage import Storage
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.queues.restore.restore_state import Prepared


def publish(
    request: QueueRestoreRequest,
    storage: Storage,
    writer: CatalogWriter,
    restore_id: str,
    made: Prepared,
    done: Done,
) -> None:
    """Record in the catalog where the messages are, once. An earlier run may have been about to: backups
    that came in between did not know of it, so it counts as of now."""
    reader = CatalogReader(request.destination, request.catalog)
    if list(reader.rows("queue_restored", restore_id=restore_id)):
        return
    name = f"queue-restore-{restore_id}"
    if done.at is not None:
        for number in range(len(_rows(restore_id, made, done, done.at))):
            storage.delete(layout.audit_path(done.at, f"{name}-{number:06d}"))
    at = micros(datetime.now(UTC))
    restore_state.write_done(storage, restore_id, replace(done, at=at))
    writer.record_once(_rows(restore_id, made, done, at), name)


def warnings_of(done: Done) -> Iterator[str]:
    """Warnings for partitions in which not all is the restore's."""
    for topic, counts in done.others.items():
        for partition, count in enumerate(counts):
            if count:
                yield (
                    f"topic {topic}, partition {partition}: {abs(count)} offsets among what was restored are "
                    "from another writer, or from an interrupted run: the next backup depends on the full, "
                    "with all of it"
                )


def _rows(restore_id: str, made: Prepared, done: Done, at: int) -> list[QueueRestore]:
    """What the next backup of these queues continues; `at` in us."""
    return [
        QueueRestore(
            restore_id=restore_id,
            at=at,
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


def is_whole(made: Prepared, done: Done) -> bool:
    """Whether what depends on the restored backup continues where the messages end: not when there are others
    among them, which it would not have."""
    return made.whole and not any(map(any, done.others.values()))


def done_of(rows: Iterable[Mapping[str, Any]], made: Prepared) -> Done:
    """From rows as of REPLAYED."""
    found = {(row["scope"], int(row["region"])): row for row in rows}

    def of(name: str) -> dict[str, list[int]]:
        return {
            topic: [found[topic, partition][name] for partition in range(len(bases))]
            for topic, bases in made.bases.items()
        }

    return Done(of("base"), of("position"), of("others"))


def suspended(storage: Storage, restore_id: str) -> str:
    """What a person must know of topics that were there, after a run that failed."""
    before = restore_state.read_settings(storage, restore_id)
    topics = [topic for topic, one in before.items() if one.epoch is not None]
    if not topics:
        return ""
    return (
        f"Retention of {', '.join(topics)} is suspended (retention.ms=-1 and others) until the same command "
        "has finished; set it yourself if you give up the restore."
    )


def name_of(file: ConfigFile) -> str:
    return file.path.rpartition("/")[2]


def summary(made: QueueRestorePlan) -> dict[str, Any]:
    return {
        "source": made.source,
        "full": made.restore_path.full.backup_id,
        "snapshot": made.restore_path.full.snapshot_id,
        "backups": [link.backup_id for link in made.restore_path.links],
        "backup_id": made.reached.backup_id,
        "whole": made.whole,
        "first_tid": made.restore_path.full.last_tid,
        "to_tid": made.to_tid,
        "to_time": format_ts(made.to_ts) if made.to_ts is not None else None,
        "files": made.files,
        "bytes": made.bytes,
        "entries_in_files": made.entries,
        "config": [name_of(file) for file in made.config],
    }


def result(made: Prepared) -> dict[str, Any]:
    return {
        "source": made.source,
        "full": made.full_id,
        "snapshot": made.snapshot_id,
        "backup_id": made.backup_id,
        "whole": made.whole,
        "first_tid": made.first_tid,
        "to_tid": made.to_tid,
        "to_time": format_ts(made.to_ts) if made.to_ts is not None else None,
        "open_transactions": made.open_transactions,
        "open_ids": made.open_ids,
        "bytes": made.bytes,
        "queues": [of_queue(queue) for queue in made.queues],
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
