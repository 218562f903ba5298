"""The task of a restore into topics: it restores its partitions one after another, in transactions.

A transaction holds complete files, of one partition or of several small ones, which are verified before their
records are sent. Its commit includes how far each partition's source was read. So a task that runs again
resumes after the last commit. Where the brokers are so slow that the transaction would time out, it ends
within a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lakebackup.errors import Refused
from lakebackup.rows.topics import Translation
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin.committed import Ends, Progress
from lakebackup_jobs.kafka.client.produce import RestoreProducer, outlasting
from lakebackup_jobs.kafka.format.records import OFFSET, select_records
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.tasks.batched import batched
from lakebackup_jobs.lifecycle.tasks.errors import RESTORED
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.lifecycle.tasks.task import Task, Work
from lakebackup_jobs.targets.bases import refuse_forgotten
from lakebackup_jobs.targets.journal import Journal, PartitionRows
from lakebackup_jobs.targets.records import ReadJob
from lakebackup_jobs.targets.translation import Ledger, Reached

# A transaction takes files until they hold this many stored bytes.
TRANSACTION_BYTES = 64 << 20
# librdkafka's name for Java's default partitioner, and the partition that lets the partitioner choose.
PARTITIONER = "murmur2_random"
ANY = -1
#: A source partition, as its topic and number, with its files.
PartitionFiles: TypeAlias = "tuple[tuple[str, str], Iterable[StoredFile]]"


@dataclass(frozen=True, slots=True)
class ReplayJob(ReadJob, Task):
    """Produces the records into topics.

    `identities`: a translation without positions for each source topic whose offsets are translated. `begins`
    maps (topic, partition) to the source position where the restore begins; others begin with their first
    record. `excluded_offsets`: the source offsets of a topic that are not restored. `target_ids`: the ids of
    the target topics. `empty`: the source topics whose target topics were empty when the restore began.
    `by_key`: records go to the partitions of their keys. `one_producer`: see RestorePlan.
    """

    COLUMNS = RESTORED

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
    one_producer: bool

    def works(self, number: int) -> Iterator[Work]:
        partitions = list(self.shares.partition_files(number))
        if self.one_producer and not self.by_key:
            yield partial(self._rows, f"{self.group}-task-{number}", self.group, partitions)
            return
        # By key, several tasks write into a partition, and each source partition has its own progress.
        for (scope, region), files in partitions:
            name = producer_of(self.group, self.targets[scope], region)
            yield partial(self._rows, name, name if self.by_key else self.group, [((scope, region), files)])

    def _rows(self, name: str, group: str, partitions: Sequence[PartitionFiles]) -> list[dict[str, Any]]:
        """Restore partitions with one producer, whose transactional id is `name`; returns their outcomes."""
        resume = partial(self._resume, name, group, partitions)
        return [asdict(outcome) for outcome in outlasting(resume)]

    def _resume(
        self, name: str, group: str, partitions: Sequence[PartitionFiles], commits: Callable[[], None]
    ) -> list[RegionOutcome]:
        """Restore partitions from their last commits on; `commits` is called after each commit."""
        storage, count = open_storage(self.shares.uri), self.shares.task_progress().counter(name)
        client = {**self.client, "partitioner": PARTITIONER} if self.by_key else self.client
        options: dict[str, Any] = {
            "zero_as_one": self.zero_as_one,
            "wait": partial(count, 0, 0),
            "label": self._label(partitions),
        }
        # A new producer with the same id ends the transaction that a killed task left open, and no other.
        with RestoreProducer(client, name, group, **options) as producer:
            journal = Journal(storage, self.shares.folder, name)
            replays = self._replays(producer, journal, partitions)
            files = ((replay, file) for replay in replays for file in replay.unread_files(count))
            for batch in batched(files, (lambda pair: pair[1].bytes, TRANSACTION_BYTES)):
                producer.begin()
                pending: dict[Replay, None] = {}  # the partitions with records in the open transaction
                for replay, file in batch:
                    pending[replay] = None
                    for _ in self._produce_file(producer, replay, file):
                        if producer.is_due:
                            self._commit(producer, journal, list(pending))
                            commits()
                            pending = {replay: None}
                            producer.begin()
                self._commit(producer, journal, list(pending))
                commits()
                for _, file in batch:  # this may wait, to keep a limit of bandwidth: not in a transaction
                    count(file.entries, file.bytes)
            idle = [replay.target for replay in replays if replay.is_idle]
            ends = producer.ends(idle) if idle and not self.by_key else {}
            journal.translate(
                replay.end(self.ends.get(replay.source, -1), ends.get(replay.target)) for replay in replays
            )
        return [replay.outcome for replay in replays]

    def _label(self, partitions: Sequence[PartitionFiles]) -> str:
        topics = sorted({self.targets[scope] for (scope, _), _ in partitions})
        suffix = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
        return f"restore into {topics[0]}{suffix}"

    def _replays(
        self, producer: RestoreProducer, journal: Journal, partitions: Sequence[PartitionFiles]
    ) -> list[Replay]:
        """The state of each partition, as the last commits left it. Raises Refused."""
        replays = [self._replay(journal, *partition, files) for partition, files in partitions]
        targets = {replay.target: replay for replay in replays}
        if self.by_key:  # an open transaction in a partition may be another task's
            (replay,) = replays
            journal.decide([replay.start(producer.committed(*replay.target), -1, None)])
            return replays
        progress = producer.resume(targets)
        ends = producer.ends(targets)
        journal.decide(
            [
                replay.start(progress[target], producer.base(target), ends[target])
                for target, replay in targets.items()
            ]
        )
        empty = {t: ends[t] for t, replay in targets.items() if replay.is_first and replay.must_be_empty}
        for topic, partition in sorted(producer.filled(empty)):
            raise _foreign_records(f"{topic}[{partition}]")
        return replays

    def _replay(self, journal: Journal, scope: str, region: str, files: Iterable[StoredFile]) -> Replay:
        identity = self.identities.get(scope)
        if identity:
            identity = replace(identity, region=region, target_region=region)
        return Replay(
            journal=journal,
            source=(scope, region),
            target=(self.targets[scope], 0 if self.by_key else int(region)),
            files=files,
            ledger=Ledger(journal.storage, identity),
            target_id=self.target_ids[scope],
            begin=self.begins.get((scope, region)),
            must_be_empty=scope in self.empty,
        )

    def _produce_file(self, producer: RestoreProducer, replay: Replay, file: StoredFile) -> Iterator[None]:
        """Send the records of a file. Yields after each piece of a block, with the position behind it."""
        topic, partition = replay.target[0], ANY if self.by_key else replay.target[1]
        for columns in open_verified(self.roots, file):
            records = select_records(columns, self.from_ts, self.to_ts, replay.position)
            if excluded := self.excluded_offsets.get(file.scope):
                records = replace(
                    records, rows=records.rows[~np.isin(records.rows[:, OFFSET], list(excluded))]
                )
            for piece in producer.pieces(records):
                if producer.produce_block(topic, partition, piece):
                    replay.ledger.add(piece.rows[:, OFFSET])
                    replay.position = int(piece.rows[-1, OFFSET]) + 1
                yield
        replay.add(file)

    def _commit(self, producer: RestoreProducer, journal: Journal, replays: Sequence[Replay]) -> None:
        """Commit the open transaction, which has files of these partitions."""
        journal.stage([(*replay.close(), replay.position) for replay in replays])
        ends = producer.commit({replay.target: replay.progress for replay in replays})
        journal.begin(
            {(replay.target_id, replay.source[1]): replay.base for replay in replays if replay.is_first}
        )
        journal.decide([replay.confirm(None if self.by_key else ends[replay.target]) for replay in replays])


@dataclass(eq=False)
class Replay:
    """The restore of one partition, at work.

    `source` and `target`: the topic and partition of the backups, and those that it is restored into.
    `target_id`: the id of the target topic. `begin`: the source position where the restore begins; None: at
    its first record. `must_be_empty`: nobody may have written into the target before. The methods that decide
    about a transaction return its rows for the translation; see Ledger.
    """

    journal: Journal
    source: tuple[str, str]
    target: tuple[str, int]
    files: Iterable[StoredFile]
    ledger: Ledger
    target_id: str
    begin: int | None
    must_be_empty: bool
    base: int = -1
    is_first: bool = True
    position: int = 0
    pending_bytes: int = 0
    is_idle: bool = True
    reached: Reached = field(default_factory=Reached)

    def start(self, progress: Progress | None, base: int, ends: Ends | None) -> PartitionRows:
        """Start where `progress`, the last commit, left off. Raises Refused when the brokers forgot it."""
        self.base = base
        self.is_first = not (progress and progress.note)
        if progress and progress.note:
            self.reached = Reached.parse(*progress)
        else:
            bases = self.journal.bases(self.target_id, self.source[1])
            refuse_forgotten(bases, base, f"{self.target[0]}[{self.source[1]}]")
            begin = self.begin
            self.reached = Reached(begin or 0, covered=-1 if begin is None else begin)
        self.position = self.reached.position
        staged = () if self.is_first else self.journal.staged(self.ledger.identity)
        return self.ledger.identity, self.ledger.open(self.reached, ends, staged)

    def unread_files(self, count: Callable[[int, int], None]) -> Iterator[StoredFile]:
        """The files that end after the position, and after the files before them. Counts the others as
        done."""
        position = self.position
        for file in self.files:
            if file.end_position > position:
                position = file.end_position
                yield file
            else:
                count(file.entries, file.bytes)

    def add(self, file: StoredFile) -> None:
        """Add a file whose records were sent in the open transaction."""
        self.position = file.end_position
        self.pending_bytes += file.bytes

    def close(self) -> PartitionRows:
        """End the open transaction; returns the rows to stage."""
        self.reached, rows = self.ledger.close(self.reached, self.position, self.pending_bytes)
        self.pending_bytes = 0
        return self.ledger.identity, rows

    @property
    def progress(self) -> Progress:
        """The progress to commit with the transaction that was ended."""
        return Progress(self.reached.position, self.reached.note)

    def confirm(self, ends: Ends | None) -> PartitionRows:
        """Record that the transaction was committed."""
        self.is_first = self.is_idle = False
        return self.ledger.identity, self.ledger.confirm(self.reached, ends)

    def end(self, source_end: int, ends: Ends | None) -> PartitionRows:
        """Return the row for a partition that is restored up to the source's end (-1: unknown)."""
        return self.ledger.identity, self.ledger.end(self.reached, source_end, ends)

    @property
    def outcome(self) -> RegionOutcome:
        reached = self.reached
        return RegionOutcome(*self.source, reached.entries, reached.bytes, reached.position)


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
