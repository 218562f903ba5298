"""What a restore of an engine finds out and records before it writes, so that a resumed run does the same."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebackup_jobs.queues.restore import restore_state
from lakebackup_jobs.queues.restore.restore_state import Before, Prepared
from lakebackup_jobs.queues.restore.scan_task import Known, OpenAt, first_ids
from lakebackup_jobs.queues.restore.splits import Partition, deal, names_in
from lakebackup_jobs.queues.transaction_ids import write_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.queues.restore import Queue, QueueRestorePlan, QueueRestoreRequest
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.targets.topics import Topics

# So many stored bytes are read by threads of this process, before Spark's tasks would have started.
LITTLE = 256 << 20
# So many messages are looked into for open transactions by this process, which holds them.
ENTRIES = 2_000_000
# So many transactions that are left out are named.
_SHOWN = 50


class Sessions:
    """A session of Spark's, made when it is needed."""

    def __init__(self, spark: SparkSession | None, remote: str | None) -> None:
        self.spark, self._remote = spark, remote

    def of(self, size: int, entries: int = 0) -> SparkSession | None:
        """One where there is so much to read that it is worth it; `entries`: messages of which something is
        held."""
        if size <= LITTLE and entries <= ENTRIES:
            return None
        if self.spark is None:
            from lakebackup_jobs.runtime.session import spark_session

            self.spark = spark_session(remote=self._remote)
        return self.spark


def ends_of(topics: Topics, counts: Mapping[str, int]) -> dict[str, list[int]]:
    """Of each topic, with so many partitions, where they end."""
    ends = topics.ends([(topic, partition) for topic, count in counts.items() for partition in range(count)])
    return {
        topic: [ends[topic, partition].high for partition in range(count)] for topic, count in counts.items()
    }


@dataclass(frozen=True, slots=True)
class Preparing:
    """One restore that is being prepared."""

    request: QueueRestoreRequest
    reader: CatalogReader
    topics: Topics
    storage: Storage
    sessions: Sessions
    restore_id: str

    def prepare(self, plan: QueueRestorePlan) -> Prepared:
        """Create the topics, find out what is left out, and record all of it."""
        settings = self._settings([queue.target for queue in plan.queues])
        there = set(self.topics.topic_names())
        for queue in plan.queues:
            self.topics.make_ready(
                queue.target,
                regions=queue.regions,
                replication=queue.replication,
                settings=queue.settings,
                there=queue.target in there,
            )
        states = {state.scope: state for state in self.topics.describe([q.target for q in plan.queues])}
        bases = ends_of(self.topics, {state.scope: state.regions for state in states.values()})
        folder = restore_state.folder_of(self.restore_id)
        segments = plan.restore_path.segments()
        leave_out, count = self._left_out(folder, plan)
        open_ids = first_ids(self.storage, leave_out[-1], _SHOWN) if leave_out[-1] else []
        shares = deal(self.storage, plan.chosen, folder, _partitions(plan.queues, bases))
        made = Prepared(
            source=plan.source,
            selection=plan.selection,
            full_id=plan.restore_path.full.backup_id,
            snapshot_id=plan.restore_path.full.snapshot_id or "",
            backup_id=plan.reached.backup_id,
            whole=plan.whole,
            first_tid=plan.restore_path.full.last_tid,
            to_tid=plan.to_tid,
            upto_tid=plan.upto_tid,
            to_ts=plan.to_ts,
            stamp=time.time_ns() // 1_000_000,
            cluster=self.topics.cluster_id(),
            queues=list(plan.queues),
            settings={
                queue.target: settings.get(queue.target, dict(queue.settings)) for queue in plan.queues
            },
            epochs={scope: state.epoch for scope, state in states.items()},
            bases=bases,
            config=list(plan.config),
            segments={
                link.link: segment for link, segment in zip(plan.restore_path.links, segments, strict=True)
            },
            names=names_in(self.reader.destinations(), shares) or self.request.names,
            leave_out=leave_out,
            open_transactions=count,
            open_ids=open_ids,
        )
        restore_state.write(self.storage, self.restore_id, made)
        return made

    def _settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The settings of their own that topics had before this restore, in whichever run, suspended some.
        Those that it makes have none."""
        existing = set(self.topics.topic_names()) & {*topics}
        there = {state.scope: state for state in self.topics.describe(existing)}
        before = restore_state.read_settings(self.storage, self.restore_id)
        found: dict[str, Before] = {}
        for topic in topics:
            state, known = there.get(topic), before.get(topic)
            if known and (known.epoch is None or (state and known.epoch == state.epoch)):
                found[topic] = known
            else:
                found[topic] = Before(state.epoch, dict(state.settings)) if state else Before()
        restore_state.write_settings(self.storage, self.restore_id, found)
        return {topic: one.settings for topic, one in found.items() if one.epoch is not None}

    def _left_out(self, folder: str, plan: QueueRestorePlan) -> tuple[list[str | None], int]:
        """For each stretch between two restores of the engine the object that names the transactions that
        did not end in it, and how many are open at the end of all."""
        links, segments = plan.restore_path.links, plan.restore_path.segments()
        paths: list[str | None] = []
        count = 0
        for segment in range(segments[-1] + 1):
            path = f"{folder}open/{segment:06d}.parquet"
            last = max(place for place, of in enumerate(segments) if of == segment)
            if segment < segments[-1] or (plan.upto_tid is None and not self.request.keep_open):
                count = write_ids(
                    self.reader, self.storage.uri, path, "queue_carried", backup_id=links[last].backup_id
                )
            elif self.request.keep_open:
                count = 0
            else:
                count = self._open_at(folder, plan).write(path, plan.upto_tid or 0, _known(plan, segment))
            paths.append(path if count else None)
        return paths, count

    def _open_at(self, folder: str, plan: QueueRestorePlan) -> OpenAt:
        return OpenAt(
            plan.chosen,
            self.sessions.of(plan.bytes, plan.entries),
            self.storage.uri,
            f"{folder}scan/",
            self.request.names,
            plan.parameters,
        )


def _known(plan: QueueRestorePlan, segment: int) -> Known:
    """What is known of transactions at the last backup whose end lies before the plan's tid."""
    links, segments = plan.restore_path.links, plan.restore_path.segments()
    # Behind a restore of the engine nothing is open.
    place = max(plan.done_by, segments.index(segment) - 1)
    behind = links[place + 1] if place + 1 < len(links) else None
    return Known(
        open_at=links[place].backup_id if segments[place] == segment else None,
        link=links[place].link,
        last_tid=links[place].last_tid,
        next_link=behind.link if behind else None,
    )


def _partitions(queues: Sequence[Queue], bases: Mapping[str, Sequence[int]]) -> Iterator[Partition]:
    """Those of the topics that are written into; they may have got more since the backup."""
    for queue in queues:
        for partition in range(len(bases[queue.target])):
            yield Partition(queue.scope, queue.epoch, str(partition), queue.target)
