"""What a Spark task of a restore into topics does: one partition after another, in transactions.

A transaction holds whole files, verified before their records are sent, and commits how far the source was
read. Readers of committed records never see half of a file, and a task that runs again resumes behind the
last commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from lakebackup.errors import NotFound, Refused
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.format.stored import open_verified
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.lifecycle.tasks.splits import batched
from lakebackup_jobs.targets.records import PartitionJob
from lakebackup_jobs.targets.translation import Ledger, Reached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lakebackup.rows.topics import Translation
    from lakebackup.storage import Storage
    from lakebackup_jobs.kafka.client.produce import RestoreProducer
    from lakebackup_jobs.kafka.format.stored import StoredFile

# Small files share a transaction until they hold this many stored bytes.
TRANSACTION_BYTES = 64 << 20
# librdkafka's name of what Java's default partitioner does, and the partition that leaves it the choice.
PARTITIONER = "murmur2_random"
ANY = -1


@dataclass(frozen=True, slots=True)
class ReplayJob(PartitionJob):
    """Produces the records into topics.

    `identities` are translations without positions, one a source topic whose offsets are translated. `begins`
    says from which source position on a (topic, partition) is brought; those not named begin with their first
    record. `left_alone`: source offsets of a topic that are not brought. `into`: ids of the target topics.
    `empty`: the source topics whose target topics held nothing when the restore began.
    """

    group: str
    client: Mapping[str, str]
    into: Mapping[str, str]
    empty: frozenset[str]
    identities: Mapping[str, Translation]
    begins: Mapping[tuple[str, str], int]
    ends: Mapping[tuple[str, str], int]
    zero_as_one: bool
    by_key: bool
    left_alone: Mapping[str, frozenset[int]]

    def restore(self, first: StoredFile, files: Iterable[StoredFile]) -> RegionOutcome:
        from lakebackup_jobs.kafka.client.produce import outlasting  # compiled: the driver does without

        return outlasting(partial(self._resume, first, files))

    def _resume(
        self, first: StoredFile, files: Iterable[StoredFile], commits: Callable[[], None]
    ) -> RegionOutcome:
        """Restore from where the partition is; `commits` is called after each commit."""
        from lakebackup_jobs.kafka.client.produce import RestoreProducer

        topic, partition = self.targets[first.scope], int(first.region)
        count = self.splits.task_progress().counter(f"{first.scope}-{partition}")
        # Made per partition: making it again ends what a killed task left open there, and only that.
        name = producer_of(self.group, topic, first.region)
        group, mark = (name, (topic, 0)) if self.by_key else (self.group, (topic, partition))
        client = {**self.client, "partitioner": PARTITIONER} if self.by_key else self.client
        waiting = partial(count, 0, 0)
        with RestoreProducer(client, name, group, zero_as_one=self.zero_as_one, wait=waiting) as producer:
            of_topic = self.identities.get(first.scope)
            identity = of_topic and replace(of_topic, region=first.region, target_region=first.region)
            ends = None if self.by_key else partial(producer.ends, mark)
            storage = open_storage(self.splits.uri)
            ledger = Ledger(storage, identity, ends)
            base_path = f"{self.splits.folder}plan/{self.into[first.scope]}/{first.region}/base"
            # Where tasks write beside each other, what is open in a partition is not a lost end of ours.
            done = producer.committed(*mark) if self.by_key else producer.resume(*mark)
            base = -1 if self.by_key else producer.base(mark)
            if starting := not (done and done.note):
                refuse_forgotten(storage, base_path, base, f"{topic}[{partition}]")
                if first.scope in self.empty and not self.by_key and producer.holds(mark):
                    raise _strange_records(f"{topic}[{partition}]")
                begin = self.begins.get((first.scope, first.region))
                reached = Reached(begin or 0, covered=-1 if begin is None else begin)
            else:
                reached = Reached.parse(*done)
            ledger.open(reached)
            position = reached.position
            rest = _beyond(position, files, count)
            for some in batched(rest, (attrgetter("bytes"), TRANSACTION_BYTES)):
                producer.begin()
                for file in some:
                    self._file(producer, ledger, file, topic, position)
                    position = file.end_position
                    count(file.entries, file.bytes)
                reached = ledger.close(reached, position, sum(file.bytes for file in some))
                producer.commit({mark: Progress(position, reached.note)})
                commits()
                if starting:
                    storage.put(base_path, b"%d" % base)
                    starting = False
                ledger.settle(reached)
            ledger.end(reached, self.ends.get((first.scope, first.region), -1))
        return RegionOutcome(first.scope, first.region, reached.entries, reached.bytes, reached.position)

    def _file(
        self, producer: RestoreProducer, ledger: Ledger, file: StoredFile, topic: str, least: int
    ) -> None:
        from lakebackup_jobs.kafka.format.records import OFFSET, within

        partition = ANY if self.by_key else int(file.region)
        for columns in open_verified(self.roots, file):
            chosen = within(columns, self.from_ts, self.to_ts, least)
            if alone := self.left_alone.get(file.scope):
                chosen = replace(chosen, rows=chosen.rows[~np.isin(chosen.rows[:, OFFSET], list(alone))])
            if producer.produce_block(topic, partition, chosen):
                ledger.add(chosen.rows[:, OFFSET])


def _beyond(
    position: int, files: Iterable[StoredFile], count: Callable[[int, int], None]
) -> Iterator[StoredFile]:
    """The files that end beyond a source position and beyond those before them; the others are done."""
    for file in files:
        if file.end_position > position:
            position = file.end_position
            yield file
        else:
            count(file.entries, file.bytes)


def refuse_forgotten(storage: Storage, base_path: str, base: int, where: str) -> None:
    """Refused where the restore has committed records, and the brokers no longer know how far it came: they
    keep the offsets of a group without members for a week (offsets.retention.minutes).

    `base_path`: the object with the base of its first transaction. One that is repaired has the same `base`.
    """
    try:
        if int(storage.get(base_path)) == base >= 0:
            return
    except NotFound:
        return
    raise Refused(
        f"{where}: this restore was interrupted, and the brokers have forgotten since how far it came (the "
        "offsets of its consumer group are gone): its records would be there twice.",
        hint="Delete the topic and run the same command again, or restore into another topic with --map.",
    )


def _strange_records(where: str) -> Refused:
    """For a run that found a topic empty, or an earlier run of the same restore that did."""
    return Refused(
        f"{where} holds records that this restore did not bring: another restore or an application has "
        "written there since it began.",
        hint="Restore into another topic with --map, or delete the topic and run the same command again.",
    )


def producer_of(group: str, target: str, region: str) -> str:
    """Who writes the records of a partition: a transactional id, also a group where it needs its own."""
    return f"{group}-{target}-{region}"
