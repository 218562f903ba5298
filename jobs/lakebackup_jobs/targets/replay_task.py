"""The task of a restore into topics: it restores one partition after another, in transactions.

A transaction holds complete files, which are verified before their records are sent. Its commit includes how
far the source was read. So readers of committed records never see a part of a file, and a task that runs
again resumes after the last commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

import numpy as np

from lakebackup.errors import NotFound, Refused
from lakebackup.rows.topics import Translation
from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.client.produce import RestoreProducer, outlasting
from lakebackup_jobs.kafka.format.records import OFFSET, select_records
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.batched import batched
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.targets.records import PartitionJob
from lakebackup_jobs.targets.translation import Ledger, Reached

# A transaction takes files until they hold this many stored bytes.
TRANSACTION_BYTES = 64 << 20
# librdkafka's name for Java's default partitioner, and the partition that lets the partitioner choose.
PARTITIONER = "murmur2_random"
ANY = -1


@dataclass(frozen=True, slots=True)
class ReplayJob(PartitionJob):
    """Produces the records into topics.

    `identities`: a translation without positions for each source topic whose offsets are translated. `begins`
    maps (topic, partition) to the source position where the restore begins; others begin with their first
    record. `excluded_offsets`: the source offsets of a topic that are not restored. `target_ids`: the ids of
    the target topics. `empty`: the source topics whose target topics were empty when the restore began.
    """

    group: str
    client: Mapping[str, str]
    target_ids: Mapping[str, str]
    empty: frozenset[str]
    identities: Mapping[str, Translation]
    begins: Mapping[tuple[str, str], int]
    ends: Mapping[tuple[str, str], int]
    zero_as_one: bool
    by_key: bool
    excluded_offsets: Mapping[str, frozenset[int]]

    def restore(self, first: StoredFile, files: Iterable[StoredFile]) -> RegionOutcome:
        return outlasting(partial(self._resume, first, files))

    def _resume(
        self, first: StoredFile, files: Iterable[StoredFile], commits: Callable[[], None]
    ) -> RegionOutcome:
        """Restore a partition from its last commit on; `commits` is called after each commit."""
        topic, partition = self.targets[first.scope], int(first.region)
        count = self.shares.task_progress().counter(f"{first.scope}-{partition}")
        # One producer for each partition: a new one with the same id ends the transaction that a killed task
        # left open, and no other.
        name = producer_of(self.group, topic, first.region)
        group, mark = (name, (topic, 0)) if self.by_key else (self.group, (topic, partition))
        client = {**self.client, "partitioner": PARTITIONER} if self.by_key else self.client
        waiting = partial(count, 0, 0)
        with RestoreProducer(client, name, group, zero_as_one=self.zero_as_one, wait=waiting) as producer:
            topic_identity = self.identities.get(first.scope)
            identity = topic_identity and replace(
                topic_identity, region=first.region, target_region=first.region
            )
            ends = None if self.by_key else partial(producer.ends, mark)
            storage = open_storage(self.shares.uri)
            ledger = Ledger(storage, identity, ends)
            base_path = f"{self.shares.folder}plan/{self.target_ids[first.scope]}/{first.region}/base"
            # By key, several tasks write into a partition, so an open transaction there may be another
            # task's.
            progress = producer.committed(*mark) if self.by_key else producer.resume(*mark)
            base = -1 if self.by_key else producer.base(mark)
            if is_first := not (progress and progress.note):
                refuse_forgotten(storage, base_path, base, f"{topic}[{partition}]")
                if first.scope in self.empty and not self.by_key and producer.holds(mark):
                    raise _foreign_records(f"{topic}[{partition}]")
                begin = self.begins.get((first.scope, first.region))
                reached = Reached(begin or 0, covered=-1 if begin is None else begin)
            else:
                reached = Reached.parse(*progress)
            ledger.open(reached)
            position = reached.position
            unread_files = _unread_files(position, files, count)
            for batch in batched(unread_files, (attrgetter("bytes"), TRANSACTION_BYTES)):
                producer.begin()
                for file in batch:
                    self._produce_file(producer, ledger, file, topic, position)
                    position = file.end_position
                    count(file.entries, file.bytes)
                reached = ledger.close(reached, position, sum(file.bytes for file in batch))
                producer.commit({mark: Progress(position, reached.note)})
                commits()
                if is_first:
                    storage.put(base_path, b"%d" % base)
                    is_first = False
                ledger.confirm(reached)
            ledger.end(reached, self.ends.get((first.scope, first.region), -1))
        return RegionOutcome(first.scope, first.region, reached.entries, reached.bytes, reached.position)

    def _produce_file(
        self, producer: RestoreProducer, ledger: Ledger, file: StoredFile, topic: str, least: int
    ) -> None:
        partition = ANY if self.by_key else int(file.region)
        for columns in open_verified(self.roots, file):
            records = select_records(columns, self.from_ts, self.to_ts, least)
            if excluded := self.excluded_offsets.get(file.scope):
                records = replace(
                    records, rows=records.rows[~np.isin(records.rows[:, OFFSET], list(excluded))]
                )
            if producer.produce_block(topic, partition, records):
                ledger.add(records.rows[:, OFFSET])


def _unread_files(
    position: int, files: Iterable[StoredFile], count: Callable[[int, int], None]
) -> Iterator[StoredFile]:
    """The files that end after a source position, and after the files before them. Counts the others as
    done."""
    for file in files:
        if file.end_position > position:
            position = file.end_position
            yield file
        else:
            count(file.entries, file.bytes)


def refuse_forgotten(storage: Storage, base_path: str, base: int, partition: str) -> None:
    """Raise Refused when the restore has committed records, but the brokers have forgotten its progress: they
    keep the offsets of a group without members for a week (offsets.retention.minutes).

    `base_path`: the object that records the `base` of the first transaction. A repaired transaction has the
    same base.
    """
    try:
        if int(storage.get(base_path)) == base >= 0:
            return
    except NotFound:
        return
    raise Refused(
        f"{partition}: this restore was interrupted, and the brokers have forgotten since how far it came "
        "(the offsets of its consumer group are gone): its records would be there twice.",
        hint="Delete the topic and run the same command again, or restore into another topic with --map.",
    )


def _foreign_records(partition: str) -> Refused:
    """The error for records in a topic that was empty when this restore, or its interrupted run, began."""
    return Refused(
        f"{partition} holds records that this restore did not bring: another restore or an application has "
        "written there since it began.",
        hint="Restore into another topic with --map, or delete the topic and run the same command again.",
    )


def producer_of(group: str, target: str, region: str) -> str:
    """The transactional id for a partition's records. With --repartition, also the group for its progress."""
    return f"{group}-{target}-{region}"
