"""From decoded blocks back into Kafka, in transactions that carry their own progress.

The progress of a restore is an offset commit of the restore's group on the target partition, made in the same
transaction as the records: its offset is the next source position. After a crash the next run fences the
old producer, reads the commit and continues there, so that no record is lost or written twice.

That holds only where the brokers end every transaction they decided, in all its partitions; `admin.committed`
says when they do not. So each commit waits until it can be read, and `resume` repairs what is half ended.
"""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from tenacity import RetryCallState, Retrying, retry_if_exception_type

from lakebackup.errors import EnvironmentProblem, LakebackupError, Refused
from lakebackup_jobs.kafka.admin.committed import Base, CommitNote, Ends, Place, Progress, Target
from lakebackup_jobs.kafka.admin.problems import (
    CONSEQUENCES,
    PASSING,
    Fenced,
    TransactionTooLong,
    Unanswered,
    problem,
    stalled,
)
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.client.librdkafka import PATIENCE, SHORT_TRANSACTIONS, WRITING, writing_tuning
from lakebackup_jobs.kafka.format.records import (
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE_LENGTH,
    Columns,
    decode_block,
    encode_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from lakebackup_jobs.kafka.memory import Longs

T = TypeVar("T")
_QUEUE_FULL = -184
# How often a wait for brokers checks for news.
_LOOK_MS = 100
# How much later than its own time limit a call may end.
_LATE_S = 30.0
# How long an abort after an error may take. The next producer of the transactional id aborts it too.
_ABORT_S = 10.0


#: How many times in a row a restore resumes behind its last commit while brokers do not answer: 4 minutes.
ATTEMPTS = 4
#: Enough of a record to recognize one that this restore wrote.
SHAPE = [TIMESTAMP, KEY_LENGTH, VALUE_LENGTH]


class Engine:
    """A transactional client, through librdkafka's own functions. Its methods raise LakebackupErrors."""

    def __init__(
        self, config: Mapping[str, str], transactional_id: str, patience: float, wait: Callable[[], object]
    ) -> None:
        self._wait = wait
        self._library = librdkafka.load()
        self._patience = patience
        self._topics: dict[str, int] = {}
        self._failed: tuple[int, str] | None = None
        self._where = f"restore {transactional_id}"
        hard = {**WRITING, "transactional.id": transactional_id}
        self._handle = librdkafka.new_client(librdkafka.PRODUCER, writing_tuning(patience, config), hard=hard)
        librdkafka.connect(self._handle)  # else it asks for the coordinator too early, and again after 0.5 s
        try:
            self._check(self._library.rd_kafka_init_transactions(self._handle, int(patience * 1000)))
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        self._failed = None
        self._check(self._library.rd_kafka_begin_transaction(self._handle))

    def send(self, topic: str, partition: int, columns: Columns) -> None:
        from lakebackup_jobs.kafka.client import native as n

        if topic not in self._topics:
            self._topics[topic] = self._library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        place: Longs = np.zeros(2, np.int64)
        arguments: Longs = np.zeros(n.ARGUMENTS, np.int64)
        headers = columns.headers()
        before, moved = -1, time.monotonic()
        where = f"{topic}[{partition}]"
        while error := n.send(
            self._handle,
            self._topics[topic],
            partition,
            columns.data,
            columns.rows,
            headers,
            arguments,
            place,
        ):
            code, text = librdkafka.take_error(error)
            self._wait()
            self._listen(10 if code == _QUEUE_FULL else 0)
            if code != _QUEUE_FULL or self._failed:
                raise problem(*(self._failed or (code, text)), where)
            if place[0] != before:
                before, moved = int(place[0]), time.monotonic()
            self._require_moving(moved, where)

    def flush(self) -> None:
        """Return when the brokers have every record, however long that takes, as long as they take some."""
        previous, moved = -1, time.monotonic()
        while self._library.rd_kafka_flush(self._handle, _LOOK_MS):
            self._wait()
            self._listen()
            outstanding = int(self._library.rd_kafka_outq_len(self._handle))
            if self._failed:
                break
            if outstanding != previous:
                previous, moved = outstanding, time.monotonic()
            self._require_moving(moved, self._where)
        self._listen()
        if self._failed:
            raise problem(*self._failed, self._where)

    def commit(self, group: str, progress: Mapping[Place, Progress]) -> None:
        self.flush()  # what is sent is not committed in a given time
        rd = self._library
        notes = [ctypes.create_string_buffer(entry.note.encode()) for entry in progress.values()]
        wanted = rd.rd_kafka_topic_partition_list_new(max(1, len(progress)))
        elements = []
        group_data = rd.rd_kafka_consumer_group_metadata_new(group.encode())
        for ((topic, partition), entry), note in zip(progress.items(), notes, strict=True):
            element = rd.rd_kafka_topic_partition_list_add(wanted, topic.encode(), partition).contents
            element.offset = entry.position
            # With its zero byte, which is where confluent-kafka's reading of it ends.
            element.metadata, element.metadata_size = ctypes.addressof(note), len(note.raw)
            elements.append(element)
        if progress:
            # What the call may still look at when it is left alone is not freed.
            self._check(self._aside(rd.rd_kafka_send_offsets_to_transaction, wanted, group_data))
        rd.rd_kafka_consumer_group_metadata_destroy(group_data)
        for element in elements:
            element.metadata, element.metadata_size = None, 0  # our memory, not the list's
        rd.rd_kafka_topic_partition_list_destroy(wanted)
        self._check(self._aside(rd.rd_kafka_commit_transaction))

    def abort(self, seconds: float | None = None) -> None:
        self._listen()
        self._failed = None
        self._check(self._aside(self._library.rd_kafka_abort_transaction, seconds=seconds))

    def close(self) -> None:
        if self._handle:
            for topic in self._topics.values():
                self._library.rd_kafka_topic_destroy(topic)
            self._topics.clear()
            librdkafka.drain_events(self._handle)
            self._library.rd_kafka_destroy(self._handle)
            self._handle = 0

    def _aside(
        self, action: Callable[..., int | None], *arguments: int, seconds: float | None = None
    ) -> int | None:
        """Run a call on another thread. Commit and abort wait for reports of failed deliveries to be taken
        here, and to send offsets waits for a dead coordinator whatever its timeout: then it is left alone."""
        ended: Future[int | None] = Future()
        patience = self._patience if seconds is None else min(seconds, self._patience)
        handle, milliseconds = self._handle, int(patience * 1000)

        def run() -> None:
            ended.set_result(action(handle, *arguments, milliseconds))

        Thread(target=run, name="transaction", daemon=True).start()
        started = time.monotonic()
        while not ended.done():
            self._listen(20)
            with suppress(Exception):  # a run that is stopped meanwhile stops behind it
                self._wait()
            waited = time.monotonic() - librdkafka.silent_since(self._handle, started)
            if waited > patience + min(patience, _LATE_S):
                self._handle = 0  # still in use over there
                raise stalled(patience, self._failed, self._where, librdkafka.delays())
        return ended.result()

    def _require_moving(self, moved: float, where: str) -> None:
        if time.monotonic() - librdkafka.silent_since(self._handle, moved) > self._patience:
            raise stalled(self._patience, self._failed, where, librdkafka.delays())

    def _listen(self, wait_ms: int = 0) -> None:
        if not self._handle:
            raise stalled(self._patience, self._failed, self._where, librdkafka.delays())
        for code, text in librdkafka.drain_events(self._handle, wait_ms):
            # The first failed delivery names the cause; what follows it are consequences.
            if self._failed is None and code not in PASSING | CONSEQUENCES:
                self._failed = (code, text)

    def _check(self, error: int | None) -> None:
        self._listen()
        if error:
            code, text = librdkafka.take_error(error)
            raise problem(*(self._failed or (code, text)), self._where)


def outlasting(write: Callable[[Callable[[], None]], T]) -> T:
    """Call `write` until brokers answer it, at most ATTEMPTS times in a row; returns its result.

    `write` resumes behind its last commit. It calls its argument after each commit, which resets the count.
    After a restart of its brokers a client may wait for ever to commit, and a new one does not.
    """
    failures = 0

    def commits() -> None:
        nonlocal failures
        failures = 0

    def stops(_: RetryCallState) -> bool:
        nonlocal failures
        failures += 1
        return failures >= ATTEMPTS

    attempts = Retrying(retry=retry_if_exception_type(Unanswered), stop=stops, reraise=True)
    return attempts(write, commits)


class RestoreProducer:
    """A restore's producer: a context manager; leaving it with an open transaction aborts that.

    Making it fences every earlier producer with the same `transactional_id` and ends their open transactions.
    `group`: whose committed offsets are the progress. `config`: librdkafka properties.
    `sent`: the partitions that got records since the last transaction began.
    `patience`: seconds without progress before EnvironmentProblem. `zero_as_one`: librdkafka takes
    timestamp 0 (the start of 1970) for "now"; such records are refused unless the caller agrees to 1 ms.
    `wait` is called again and again while the brokers are waited for; it may raise.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        transactional_id: str,
        group: str,
        *,
        patience: float = PATIENCE,
        zero_as_one: bool = False,
        wait: Callable[[], object] = lambda: None,
    ) -> None:
        self._config, self._group, self._patience = config, group, patience
        self._zero_as_one = zero_as_one
        self._open = False
        self._bases: dict[Place, Base] = {}
        self._there: dict[Place, Longs] = {}
        self.sent: set[Place] = set()
        try:
            self._engine = Engine(config, transactional_id, patience, wait)
        except TransactionTooLong:
            self._engine = Engine({**SHORT_TRANSACTIONS, **config}, transactional_id, patience, wait)
        self._target = Target(config, group, patience)

    def __enter__(self) -> RestoreProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._open:
                self._open = False
                self._engine.abort(None if error is None else _ABORT_S)
        except LakebackupError:
            # The coordinator aborts by itself when the transaction's time is up, or when the next
            # producer of this id begins; the error that brought us here matters more.
            if error is None:
                raise
        finally:
            self._engine.close()
            self._target.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._engine.begin()
        self._open = True
        self.sent = set()

    def produce_block(self, topic: str, partition: int, columns: Columns) -> int:
        """Produce the block's records in order; returns how many they are.

        Key, value (null or not), headers in order and timestamp (-1: it has none) are last. Raises Refused
        for a timestamp that cannot be last, Fenced, EnvironmentProblem.
        """
        rows = columns.rows
        if not len(rows):
            return 0
        zeros = rows[rows[:, TIMESTAMP] == 0, OFFSET]
        if len(zeros) and not self._zero_as_one:
            raise Refused(
                f"{topic}[{partition}]: the record of source offset {zeros[0]} has timestamp 0, "
                "which the Kafka client would replace by the present time.",
                hint="Allow such records to be written with timestamp 1 (ms) instead.",
            )
        place = (topic, partition)
        missing = replace(columns, rows=rows[self._found(place, rows) :])
        if len(missing.rows):
            self._engine.send(topic, partition, missing)
        self.sent.add(place)
        return len(rows)

    def commit(self, progress: Mapping[Place, Progress]) -> None:
        """Commit the records together with `progress`; returns when committed readers see them."""
        try:
            self._commit_offsets(
                {place: CommitNote(entry, self._bases.get(place)) for place, entry in progress.items()}
            )
        except Fenced:
            self._open = False  # the transaction is the other's to end
            raise
        self._open = False
        for place, entry in progress.items():
            high = self._target.ends(place).high
            self._target.wait(place, high=high)
            if not len(self._there.get(place, ())):
                self._bases[place] = Base(entry, high)

    def abort(self) -> None:
        """Give up the open transaction: none of its records will be read by a committed reader."""
        self._open = False
        self._engine.abort()

    def ends(self, place: Place) -> Ends:
        """Where readers of committed records stop in a target partition, and where it ends."""
        return self._target.ends(place)

    def base(self, place: Place) -> int:
        """The offset of a target partition, once resumed, that nothing which is sent next lies before."""
        return self._bases[place].offset

    def holds(self, place: Place) -> bool:
        """Whether readers of committed records find any before the base of a partition."""
        from lakebackup_jobs.kafka.client.consume import reader

        low, end = self._target.begin(place), min(self.base(place), self._target.ends(place).stable)
        if low >= end:
            return False
        with closing(reader(self._config).blocks(*place, low, end, patience=self._patience)) as blocks:
            return next(blocks, None) is not None

    def begins(self, place: Place) -> int:
        """The offset of a target partition, once resumed, that what is sent next comes at or behind; what is
        there of it already is not before it."""
        if len(self._there.get(place, ())):
            return self._bases[place].offset
        return self._target.ends(place).high

    def committed(self, topic: str, partition: int) -> Progress | None:
        """The progress that was committed last for this target partition; None when there was none."""
        place = (topic, partition)
        if self._target.offsets_pending(place):
            # To write on would end that transaction too, whatever had been decided of it.
            raise EnvironmentProblem(f"{topic}[{partition}]: the brokers lost the end of a transaction here.")
        last = self._target.committed(place)
        return last.progress if last else None

    def resume(self, topic: str, partition: int) -> Progress | None:
        """Where to continue in this target partition, None at its beginning; ends what brokers left open.

        This producer's id has no transaction any more that its coordinator would still end. So what is open
        here has lost its marker. Whether that was to commit or to abort is unknown, and other partitions of
        the same transaction may have theirs; so what is open is aborted, and the restore returns to the
        base of the last progress: records after it that are there nevertheless are not sent again.
        """
        place = (topic, partition)
        last, ends = self._target.committed(place), self._target.ends(place)
        if last and not (last.repairing or ends.stable < ends.high or self._target.offsets_pending(place)):
            self._bases[place] = Base(last.progress, ends.high)
            return last.progress
        base = (last and last.base) or Base(last.progress if last else Progress(0, ""), ends.high)
        # The base is committed first: after the abort the last progress may be too far.
        self._engine.begin()
        self._commit_offsets({place: CommitNote(base.before, base, repairing=True)})
        self._target.wait(place, high=0)
        if ends.stable < ends.high:
            self._end_open(place)
        if last:
            high = self._target.ends(place).high
            self._target.wait(place, high=high)
            self._there[place] = self._shapes(place, base.offset, high)
        self._bases[place] = base
        return base.before if last else None

    def _commit_offsets(self, notes: Mapping[Place, CommitNote]) -> None:
        self._engine.commit(
            self._group,
            {place: Progress(entry.progress.position, entry.note()) for place, entry in notes.items()},
        )

    def _end_open(self, place: Place) -> None:
        """Abort what is open in a partition: a marker ends all that its producer id began there."""
        record = encode_record(*place, 0, int(time.time() * 1000), 0, b"", b"", [])
        self._engine.begin()
        self._engine.send(*place, decode_block(record, 1))
        self._engine.flush()  # the marker goes only where the broker has seen a record
        self._engine.abort()

    def _shapes(self, place: Place, start: int, end: int) -> Longs:
        """Timestamp and lengths of key and value of the committed records in [start, end)."""
        from lakebackup_jobs.kafka.client.consume import reader

        found = [
            block.columns().rows[:, SHAPE]
            for block in reader(self._config).blocks(*place, start, end, patience=self._patience)
        ]
        return np.concatenate(found) if found else np.empty((0, len(SHAPE)), np.int64)

    def _found(self, place: Place, rows: Longs) -> int:
        """How many of the records to be sent are there already; Refused when others are there instead."""
        there = self._there.get(place)
        if there is None or not len(there):
            return 0
        count = min(len(there), len(rows))
        wanted = rows[:count, SHAPE]
        wanted[:, 0] = np.where(wanted[:, 0] > 0, wanted[:, 0], there[:count, 0])  # no time of its own
        if not np.array_equal(wanted, there[:count]):
            raise Refused(
                f"{place[0]}[{place[1]}]: brokers lost the end of a transaction, and other records were "
                "written among those of this restore.",
                hint="Restore into another topic.",
            )
        self._there[place] = there[count:]
        return count
