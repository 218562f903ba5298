"""What a restore of an engine finds out and records before it writes, so that a resumed run does the same."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING

from lakebackup.plan.queues.restore import EngineState
from lakebackup_jobs.queues.restore.restore_state import Before, Prepared, TopicsBefore
from lakebackup_jobs.queues.restore.scan_task import first_ids, write_open
from lakebackup_jobs.queues.restore.splits import Partition, names_in, write_splits
from lakebackup_jobs.queues.transaction_ids import write_ids
from lakebackup_jobs.targets.topics import NewTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.queues.restore import QueueRestorePlan, QueueRestoreRequest
    from lakebackup_jobs.lifecycle.workspace import Workspace
    from lakebackup_jobs.queues.restore.restore_state import RestoreState
    from lakebackup_jobs.targets.topics import Topics

# So many stored bytes are read by threads of this process, before Spark's tasks would have started.
LITTLE = 256 << 20
# So many messages are looked into for open transactions by this process, which holds them.
ENTRIES = 2_000_000
# So many transactions that are left out are named.
_SHOWN = 50


def spark_for(work: Workspace, state: EngineState, entries: int = 0) -> SparkSession | None:
    """A session where there is so much to read that it is worth it; `entries`: messages of which something is
    held."""
    return None if state.bytes <= LITTLE and entries <= ENTRIES else work.spark


def ends_of(topics: Topics, counts: Mapping[str, int]) -> dict[str, list[int]]:
    """Of each topic, with so many partitions, where they end."""
    ends = topics.ends([(topic, partition) for topic, count in counts.items() for partition in range(count)])
    return {
        topic: [ends[topic, partition].high for partition in range(count)] for topic, count in counts.items()
    }


def prepare(
    request: QueueRestoreRequest, work: Workspace, topics: Topics, state: RestoreState, plan: QueueRestorePlan
) -> Prepared:
    """Create the topics, find out what is left out, and record all of it."""
    targets = [queue.target for queue in plan.queues]
    settings = _settings(topics, state, targets)
    there = set(topics.topic_names())
    for queue in plan.queues:
        if queue.target in there:
            topics.suspend(queue.target)
        else:
            new = NewTopic(queue.target, queue.regions, queue.replication, queue.settings)
            for note in topics.make(new):
                work.reporter.warning(note)
    states = topics.describe(targets)
    bases = ends_of(topics, {state.scope: state.regions for state in states})
    leave_out, count = _left_out(request, work, state, plan)
    open_ids = first_ids(state.storage, leave_out[-1], _SHOWN) if leave_out[-1] else []
    # Topics that are written into may have got more partitions since the backup.
    partitions = [
        Partition(queue.scope, queue.epoch, str(partition), queue.target)
        for queue in plan.queues
        for partition in range(len(bases[queue.target]))
    ]
    splits = write_splits(state.storage, plan.chosen, state.folder, partitions)
    path = plan.restore_path
    made = Prepared(
        **{field.name: getattr(plan, field.name) for field in fields(EngineState)},
        stamp=time.time_ns() // 1_000_000,
        cluster=topics.cluster_id(),
        settings={queue.target: settings.get(queue.target, dict(queue.settings)) for queue in plan.queues},
        epochs={state.scope: state.epoch for state in states},
        bases=bases,
        segments={link.link: segment for link, segment in zip(path.links, path.segments(), strict=True)},
        names=names_in(plan.chosen.reader.destinations(), splits) or request.names,
        leave_out=leave_out,
        open_transactions=count,
        open_ids=open_ids,
    )
    state.write(made)
    return made


def _settings(topics: Topics, state: RestoreState, targets: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of their own that topics had before this restore, in whichever run, suspended some.
    Those that it makes have none."""
    existing = set(topics.topic_names()) & {*targets}
    there = {found.scope: found for found in topics.describe(existing)}
    before = (state.read(TopicsBefore) or TopicsBefore()).topics
    found: dict[str, Before] = {}
    for topic in targets:
        now, known = there.get(topic), before.get(topic)
        if known and (known.epoch is None or (now and known.epoch == now.epoch)):
            found[topic] = known
        else:
            found[topic] = Before(now.epoch, dict(now.settings)) if now else Before()
    state.write(TopicsBefore(found))
    return {topic: one.settings for topic, one in found.items() if one.epoch is not None}


def _left_out(
    request: QueueRestoreRequest, work: Workspace, state: RestoreState, plan: QueueRestorePlan
) -> tuple[list[str | None], int]:
    """For each stretch between two restores of the engine the object that names the transactions that
    did not end in it, and how many are open at the end of all."""
    links, segments = plan.restore_path.links, plan.restore_path.segments()
    reader, uri = plan.chosen.reader, state.storage.uri
    paths: list[str | None] = []
    count = 0
    for segment in range(segments[-1] + 1):
        path = f"{state.folder}open/{segment:06d}.parquet"
        last = max(place for place, of in enumerate(segments) if of == segment)
        if segment < segments[-1] or (plan.upto_tid is None and not request.keep_open):
            count = write_ids(reader, uri, path, "queue_carried", backup_id=links[last].backup_id)
        elif request.keep_open:
            count = 0
        else:
            spark = spark_for(work, plan, plan.entries)
            count = write_open(plan, spark, uri, f"{state.folder}scan/", path, request.names)
        paths.append(path if count else None)
    return paths, count
