"""The task of an engine's restore: it writes one partition of a queue after another, in Kafka transactions.

The first transaction of a partition begins with the watermark message. A transaction holds the messages of
whole files, each verified before its messages are sent, and commits how many files of the partition are
written. So a task that runs again resumes after the last commit and writes no message twice. The commits also
record which offsets are the restore's own, so that messages of another writer among them are noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from lakebackup.errors import NotFound
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.formats.queues.watermark import Watermark, headers_of
from lakebackup.storage import Storage, open_storage
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.client.produce import RestoreProducer, outlasting
from lakebackup_jobs.kafka.format.records import Columns, decode_block, encode_record
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.tasks.errors import RESTORED
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.task import Task, Work
from lakebackup_jobs.queues.messages import read_messages, select_messages, select_rows
from lakebackup_jobs.queues.restore.shares import Partition, QueueFile, partitions
from lakebackup_jobs.queues.transaction_ids import read_ids
from lakebackup_jobs.targets.bases import refuse_forgotten
from lakebackup_jobs.targets.replay_task import TRANSACTION_BYTES, producer_of

# Reads the ids of transactions from an object. It is called when the first file of a segment is read.
ReadIds = Callable[[str], Any]
# The columns that a task reports for each partition. `position`: its end; `base`: the watermark is at this
# offset or a later one; `others`: how many offsets from there on are not the restore's.
REPLAYED = RESTORED.replace(", error", ", base BIGINT, others BIGINT, error")


@dataclass(frozen=True, slots=True)
class QueueReplayJob(Task):
    """Restores the partitions of a split, one after another, and reports a row of REPLAYED for each.

    `watermark` is the first message, `stamp` its time in ms, `watermark_names` the names of its headers.
    `names`: the header names for files that record none. `upto_tid`: messages with a greater tid are left
    out; None: all are restored. A segment is the part of a chain between two restores of the engine.
    `segments`: the number of the segment of each link of the chain; `leave_out`: for each segment the
    object in the destination that names the transactions that did not end in it; None: all ended.
    """

    COLUMNS = REPLAYED

    roots: Roots
    shares: PlanShares
    group: str
    client: Mapping[str, str]
    names: HeaderNames
    watermark: Watermark
    stamp: int
    watermark_names: HeaderNames
    upto_tid: int | None
    segments: Mapping[int, int]
    leave_out: tuple[str | None, ...]
    zero_as_one: bool = False

    def works(self, number: int) -> Iterator[Work]:
        read = cache(partial(read_ids, open_storage(self.shares.uri)))
        for partition, files in partitions(self.shares, number):
            yield partial(outlasting, partial(self._partition, partition, files, read))

    def _partition(
        self,
        queue_partition: Partition,
        files: Iterable[QueueFile],
        read: ReadIds,
        on_commit: Callable[[], None],
    ) -> list[dict[str, Any]]:
        """Restore the rest of a partition, and return its row. `on_commit` is called after each commit."""
        topic, partition = queue_partition.target, int(queue_partition.region)
        topic_partition = (topic, partition)
        count = self.shares.task_progress().counter(f"{topic}-{partition}")
        # Each partition has a producer of its own, so that a new one ends only the transaction that a killed
        # task left open there.
        name = producer_of(self.group, topic, queue_partition.region)
        storage, base_path = open_storage(self.shares.uri), f"{self.shares.folder}base/{topic}-{partition}"
        with RestoreProducer(
            self.client, name, self.group, zero_as_one=self.zero_as_one, wait=partial(count, 0, 0)
        ) as producer:
            stored_progress = producer.resume([topic_partition])[topic_partition]
            base = producer.base(topic_partition)
            progress = (
                _PartitionProgress.parse(stored_progress)
                if stored_progress and stored_progress.note
                else None
            )
            starting = progress is None

            def commit(progress: _PartitionProgress) -> _PartitionProgress:
                nonlocal starting
                updated = _commit(producer, topic_partition, progress)
                on_commit()
                if starting:
                    storage.put(base_path, b"%d" % base)
                    starting = False
                return updated

            pending = 0
            if progress is None:
                refuse_forgotten(_recorded_bases(storage, base_path), base, f"{topic}[{partition}]")
                # The base is taken now: what was written since the restore was prepared is of the
                # history that is abandoned.
                progress = _PartitionProgress(base=producer.begins(topic_partition))
                producer.begin()
                producer.produce_block(topic, partition, self._watermark_record(*topic_partition))
                pending = 1
            for number, file in enumerate(files):
                if number >= progress.files:
                    if not pending:
                        producer.begin()
                    entries = self._file(producer, file, topic_partition, read)
                    progress = replace(
                        progress,
                        files=number + 1,
                        entries=progress.entries + entries,
                        bytes=progress.bytes + file.bytes,
                    )
                    pending += file.bytes
                    if pending >= TRANSACTION_BYTES or producer.is_due:
                        progress = commit(progress)
                        pending = 0
                count(file.entries, file.bytes)
            if pending:
                progress = commit(progress)
            end = producer.ends([topic_partition])[topic_partition].high
        row = {
            "scope": topic,
            "region": queue_partition.region,
            "entries": progress.entries,
            "bytes": progress.bytes,
            "position": end,
            "base": progress.base,
            "others": end - progress.end,
        }
        return [row]

    def _watermark_record(self, topic: str, partition: int) -> Columns:
        """Return the watermark message as a block of one record; it is the same in every run."""
        value, headers = self.watermark.value, tuple(headers_of(self.watermark_names))
        return decode_block(encode_record(topic, partition, 0, self.stamp, 0, None, value, headers), 1)

    def _file(
        self, producer: RestoreProducer, file: QueueFile, topic_partition: tuple[str, int], read: ReadIds
    ) -> int:
        count = 0
        path = self.leave_out[self.segments[file.link]]
        ids = read(path) if path else None
        location = f"{file.path}, {file.scope}[{file.region}]"
        reader = open_verified(self.roots, file)
        names = HeaderNames.read(reader.metadata) or self.names
        for columns in reader:
            rows = columns
            if self.upto_tid is not None or path:
                messages = read_messages(columns, names, location)
                rows = select_rows(
                    columns, select_messages(columns, messages, upto_tid=self.upto_tid, leave_out=ids)
                )
            count += producer.produce_block(*topic_partition, rows)
        return count


@dataclass(frozen=True, slots=True)
class _PartitionProgress:
    """The progress of a partition, as its last transaction recorded it: files, messages and stored bytes;
    the partition's end before the watermark; and the number of transaction markers since."""

    files: int = 0
    entries: int = 0
    bytes: int = 0
    base: int = 0
    markers: int = 0

    @property
    def end(self) -> int:
        """The end of the partition if nobody else writes to it."""
        return self.base + 1 + self.entries + self.markers

    def progress(self) -> Progress:
        return Progress(self.files, json.dumps([self.entries, self.bytes, self.base, self.markers]))

    @classmethod
    def parse(cls, stored_progress: Progress) -> _PartitionProgress:
        return cls(stored_progress.position, *json.loads(stored_progress.note))


def _commit(
    producer: RestoreProducer, topic_partition: tuple[str, int], progress: _PartitionProgress
) -> _PartitionProgress:
    # A transaction leaves a marker only in partitions that it has sent messages to.
    progress = replace(progress, markers=progress.markers + (topic_partition in producer.transaction_targets))
    producer.commit({topic_partition: progress.progress()})
    return progress


def _recorded_bases(storage: Storage, path: str) -> list[int]:
    """The end of a partition before the restore's first transaction, if one was committed."""
    try:
        return [int(storage.get(path))]
    except NotFound:
        return []
