"""Prepares an engine's restore: creates its topics and records what it will do.

The record is written before any message, so that a resumed run does the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields

from lakebackup.plan.queues.restore import EngineState, Queue, QueueRestorePlan, QueueRestoreRequest
from lakebackup.storage import working
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic
from lakebackup_jobs.lifecycle.keyring import open_roots
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.restore.restore_state import FormerTopic, Prepared, RestoreState, TopicsBefore
from lakebackup_jobs.queues.restore.scan_task import first_ids, write_open
from lakebackup_jobs.queues.restore.shares import Partition, names_in, store_partitions
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.targets.topics import Topics

# The greatest number of open transactions whose ids are recorded.
_MAX_OPEN_IDS = 50


def ends_of(topics: Topics, counts: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the end offset of each partition of the topics. `counts` has their numbers of partitions."""
    ends = topics.ends([(topic, partition) for topic, count in counts.items() for partition in range(count)])
    return {
        topic: [ends[topic, partition].high for partition in range(count)] for topic, count in counts.items()
    }


def new_topic(queue: Queue) -> NewTopic:
    """Return the topic to create for a queue."""
    return NewTopic(queue.target, queue.regions, queue.replication, queue.settings)


def prepare(
    request: QueueRestoreRequest,
    work: Workspace,
    topics: Topics,
    state: RestoreState,
    plan: QueueRestorePlan,
    reader: CatalogReader,
) -> Prepared:
    """Create the topics, and record the open transactions and the plan. Return what will be done, as
    recorded."""
    targets = [queue.target for queue in plan.queues]
    settings = _settings(topics, state, targets)
    existing = set(topics.topic_names())
    topics.suspend(existing.intersection(targets))
    new_topics = [new_topic(queue) for queue in plan.queues if queue.target not in existing]
    for note in topics.make(new_topics, []):
        work.reporter.warning(note)
    topics.wait_until_served({topic.name: topic.regions for topic in new_topics})
    states = topics.describe(targets)
    bases = ends_of(topics, {topic.scope: topic.regions for topic in states})
    leave_out, open_count = _write_open_ids(request, work, state, plan, reader)
    open_ids = first_ids(state.storage, leave_out[-1], _MAX_OPEN_IDS) if leave_out[-1] else []
    # An existing topic may have more partitions than at the time of the backup.
    partitions = [
        Partition(queue.scope, queue.epoch, str(partition), queue.target)
        for queue in plan.queues
        for partition in range(len(bases[queue.target]))
    ]
    shares = store_partitions(state.storage, plan.file, state.folder, partitions)
    path = plan.restore_path
    prepared = Prepared(
        **{field.name: getattr(plan, field.name) for field in fields(EngineState)},
        stamp=time.time_ns() // 1_000_000,
        cluster=topics.cluster_id(),
        settings={queue.target: settings.get(queue.target, dict(queue.settings)) for queue in plan.queues},
        epochs={topic.scope: topic.epoch for topic in states},
        bases=bases,
        segments={link.link: segment for link, segment in zip(path.links, path.segments(), strict=True)},
        names=names_in(open_roots(reader, shares.file), shares) or request.names,
        leave_out=leave_out,
        open_transactions=open_count,
        open_ids=open_ids,
    )
    state.write(prepared)
    return prepared


def _settings(topics: Topics, state: RestoreState, targets: Sequence[str]) -> dict[str, dict[str, str]]:
    """Record the topics as they were before this restore, and return the settings of those that existed.

    If an earlier run of this restore has recorded a topic that still has the same id, its record stays, since
    that run may have suspended some of the settings.
    """
    existing = set(topics.topic_names()) & {*targets}
    current_topics = {description.scope: description for description in topics.describe(existing)}
    recorded = (state.read(TopicsBefore) or TopicsBefore()).topics
    former_topics: dict[str, FormerTopic] = {}
    for topic in targets:
        current, record = current_topics.get(topic), recorded.get(topic)
        if record and (record.epoch is None or (current and record.epoch == current.epoch)):
            former_topics[topic] = record
        else:
            former_topics[topic] = (
                FormerTopic(current.epoch, dict(current.settings)) if current else FormerTopic()
            )
    state.write(TopicsBefore(former_topics))
    return {topic: former.settings for topic, former in former_topics.items() if former.epoch is not None}


def _write_open_ids(
    request: QueueRestoreRequest,
    work: Workspace,
    state: RestoreState,
    plan: QueueRestorePlan,
    reader: CatalogReader,
) -> tuple[list[str | None], int]:
    """Write the ids of the transactions that the restore leaves out, an object for each segment of the chain.

    A segment is the part of the chain between two restores of the engine. A transaction is left out if it is
    open at the end of its segment; the segment's last backup lists these transactions. If the restore ends at
    a tid, those open at this tid are looked for in the last segment. With --keep-open, none is left out of
    the last segment.

    Returns the path for each segment (None: nothing is left out) and how many are left out of the last one.
    """
    links, segments = plan.restore_path.links, plan.restore_path.segments()
    uri = state.storage.uri
    paths: list[str | None] = []
    count = 0
    for segment in range(segments[-1] + 1):
        path = f"{state.folder}open/{segment:06d}.parquet"
        last = max(index for index, number in enumerate(segments) if number == segment)
        if segment < segments[-1] or (plan.upto_tid is None and not request.keep_open):
            count = write_ids(reader, uri, path, "queue_carried", backup_id=links[last].backup_id)
        elif request.keep_open:
            count = 0
        else:
            folder = f"{state.folder}scan/"
            try:
                count = write_open(plan, reader, work.task_session, uri, folder, path, request.names)
            finally:
                working.empty(state.storage, folder)
        paths.append(path if count else None)
    return paths, count
