"""What a task of an engine's restore does: one partition of a queue after another, in Kafka transactions.

The first transaction of a partition begins with the watermark message. A transaction holds whole files,
verified before their messages are sent, and commits how many of the partition's files it has written, so that
a task that runs again resumes behind the last commit, and nothing is there twice. Its commits also record
which offsets are its own, so that messages of another writer among them are noticed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.formats.queues.watermark import headers_of
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.client.produce import RestoreProducer, outlasting
from lakebackup_jobs.kafka.format.records import decode_block, encode_record
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.tasks.errors import RESTORED
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.queues.messages import chosen, read_messages, taken
from lakebackup_jobs.queues.transaction_ids import read_ids
from lakebackup_jobs.targets.replay_task import TRANSACTION_BYTES, producer_of, refuse_forgotten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lakebackup.formats.queues.watermark import Watermark
    from lakebackup.store.roots import Roots
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.lifecycle.tasks.task import Work
    from lakebackup_jobs.queues.restore.splits import Partition, QueueFile, QueueSplits

    # The ids of transactions in an object, which is read when the first file of its stretch is.
    ReadIds = Callable[[str], Any]

# What a task reports of each partition. `position`: where it ends; `base`: the offset that the watermark came
# at or behind; `others`: how many offsets since are not the restore's.
REPLAYED = RESTORED.replace(", error", ", base BIGINT, others BIGINT, error")


@dataclass(frozen=True, slots=True)
class QueueReplayJob(Task):
    """Restores the partitions of a split, one after another: a row of REPLAYED each.

    `watermark` is the message in front, `stamp` its time in ms, `watermark_names` its headers. `names`: by
    which messages are understood whose file has no names. `upto_tid`: messages behind it are left out, None:
    none are. `segments`: of a link of the chain, the number of the stretch between two restores of the engine
    that it is of; `leave_out`: of each stretch the object in the destination that names the transactions that
    did not end in it, None: there are none.
    """

    COLUMNS = REPLAYED

    roots: Roots
    splits: QueueSplits
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
        read = cache(partial(read_ids, open_storage(self.splits.uri)))
        for place, files in self.splits.partitions(number):
            yield partial(outlasting, partial(self._partition, place, files, read))

    def _partition(
        self, place: Partition, files: Iterable[QueueFile], read: ReadIds, commits: Callable[[], None]
    ) -> dict[str, Any]:
        """Restore from where the partition is; `commits` is called after each commit."""
        topic, partition = place.target, int(place.region)
        mark = (topic, partition)
        count = self.splits.task_progress().counter(f"{topic}-{partition}")
        # Made per partition: making it again ends what a killed task left open there, and only that.
        name = producer_of(self.group, topic, place.region)
        storage, base_path = open_storage(self.splits.uri), f"{self.splits.folder}base/{topic}-{partition}"
        with RestoreProducer(
            self.client, name, self.group, zero_as_one=self.zero_as_one, wait=partial(count, 0, 0)
        ) as producer:
            done, base = producer.resume(*mark), producer.base(mark)
            reached = _Reached.parse(done) if done and done.note else None
            starting = reached is None

            def committed(reached: _Reached) -> _Reached:
                nonlocal starting
                made = _committed(producer, mark, reached)
                commits()
                if starting:
                    storage.put(base_path, b"%d" % base)
                    starting = False
                return made

            pending = 0
            if reached is None:
                refuse_forgotten(storage, base_path, base, f"{topic}[{partition}]")
                # As of now: what was written since the restore was prepared is of the history that is left.
                reached = _Reached(base=producer.begins(mark))
                producer.begin()
                producer.produce_block(topic, partition, self._in_front(*mark))
                pending = 1
            for number, file in enumerate(files):
                if number >= reached.files:
                    if not pending:
                        producer.begin()
                    entries = self._file(producer, file, mark, read)
                    reached = replace(
                        reached,
                        files=number + 1,
                        entries=reached.entries + entries,
                        bytes=reached.bytes + file.bytes,
                    )
                    pending += file.bytes
                    if pending >= TRANSACTION_BYTES:
                        reached = committed(reached)
                        pending = 0
                count(file.entries, file.bytes)
            if pending:
                reached = committed(reached)
            end = producer.ends(mark).high
        return {
            "scope": topic,
            "region": place.region,
            "entries": reached.entries,
            "bytes": reached.bytes,
            "position": end,
            "base": reached.base,
            "others": end - reached.end,
        }

    def _in_front(self, topic: str, partition: int) -> Columns:
        """The watermark's message, the same whenever it is made, as a block of one record."""
        value, headers = self.watermark.value, tuple(headers_of(self.watermark_names))
        return decode_block(encode_record(topic, partition, 0, self.stamp, 0, None, value, headers), 1)

    def _file(self, producer: RestoreProducer, file: QueueFile, mark: tuple[str, int], read: ReadIds) -> int:
        sent = 0
        path = self.leave_out[self.segments[file.link]]
        ids = read(path) if path else None
        where = f"{file.path}, {file.scope}[{file.region}]"
        reader = open_verified(self.roots, file)
        names = HeaderNames.read(reader.metadata) or self.names
        for columns in reader:
            rows = columns
            if self.upto_tid is not None or path:
                messages = read_messages(columns, names, where)
                rows = taken(columns, chosen(columns, messages, upto_tid=self.upto_tid, leave_out=ids))
            sent += producer.produce_block(*mark, rows)
        return sent


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far a partition is, as its last transaction recorded: files, messages and stored bytes; the
    partition's end before the watermark, and how many transactions left their marker since."""

    files: int = 0
    entries: int = 0
    bytes: int = 0
    base: int = 0
    markers: int = 0

    @property
    def end(self) -> int:
        """Where the partition ends when nobody else writes to it."""
        return self.base + 1 + self.entries + self.markers

    def progress(self) -> Progress:
        return Progress(self.files, json.dumps([self.entries, self.bytes, self.base, self.markers]))

    @classmethod
    def parse(cls, done: Progress) -> _Reached:
        return cls(done.position, *json.loads(done.note))


def _committed(producer: RestoreProducer, mark: tuple[str, int], reached: _Reached) -> _Reached:
    # A transaction without a message here has no marker here.
    reached = replace(reached, markers=reached.markers + (mark in producer.sent))
    producer.commit({mark: reached.progress()})
    return reached
