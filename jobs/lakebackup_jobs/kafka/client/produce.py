"""Writes decoded blocks back to Kafka, in transactions that contain the restore's progress.

The progress of a restore is an offset commit of the restore's group on the target partition, made in the same
transaction as the records: its offset is the next source position. After a crash the next run fences the
old producer, reads the commit and continues there, so that no record is lost or written twice.

That needs brokers that end each decided transaction in all its partitions; `admin.committed` says when they
do not. So each commit waits until it can be read, and `resume` repairs partitions in which a transaction did
not end.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from threading import Thread
from types import TracebackType
from typing import TypeVar

import numpy as np
from tenacity import RetryCallState, Retrying, retry_if_exception_type

from lakebackup.errors import EnvironmentProblem, LakebackupError, Refused
from lakebackup_jobs.kafka.admin.committed import Base, CommitNote, Ends, Partition, Progress, Target
from lakebackup_jobs.kafka.admin.problems import (
    CONSEQUENCES,
    PASSING,
    Fenced,
    TransactionTooLong,
    Unanswered,
    stalled,
    transaction_problem,
)
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.client import native as n
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.kafka.client.librdkafka import (
    PATIENCE,
    TRANSACTION_TIMEOUTS_MS,
    WRITING,
    writing_tuning,
)
from lakebackup_jobs.kafka.format.records import (
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE_LENGTH,
    Columns,
    decode_block,
    encode_record,
)
from lakebackup_jobs.kafka.memory import Longs

T = TypeVar("T")
_QUEUE_FULL = -184
# How long one call of flush waits before it checks for errors.
_POLL_MS = 100
# How long a call may take beyond its own time limit.
_LATE_S = 30.0
# How long an abort after an error may take. The next producer of the transactional id aborts too.
_ABORT_S = 10.0
#: The most bytes of records that a producer queues, unless a single record is larger.
QUEUE_BYTES = 64 << 20
# The same for each second that a transaction may take, so that a commit can send what is queued in time. And
# how many bytes are sent between two looks at the clock. Both together allow a quota of 100 kB/s.
_QUEUE_BYTES_A_SECOND = 64 << 10
_PIECE_BYTES_A_SECOND = 16 << 10
# The part of its timeout after which a transaction is due. The rest is for what is queued, and the commit.
_DUE_PART = 0.25


#: How many times in a row a restore is tried from its last commit on while brokers do not answer: 4 minutes.
ATTEMPTS = 4
#: The columns of a record by which a restore recognizes one that it wrote.
SHAPE = [TIMESTAMP, KEY_LENGTH, VALUE_LENGTH]


class Engine:
    """A transactional producer, through librdkafka's own functions. Its methods raise LakebackupErrors."""

    def __init__(
        self, config: Mapping[str, str], transactional_id: str, patience: float, wait: Callable[[], object]
    ) -> None:
        self._wait = wait
        self._library = librdkafka.load()
        self._patience = patience
        self._topics: dict[str, int] = {}
        self._failure: tuple[int, str] | None = None
        self._label = f"restore {transactional_id}"
        self._begin_s = time.monotonic()
        hard = {**WRITING, "transactional.id": transactional_id}
        properties = writing_tuning(patience, config)
        self._handle = librdkafka.new_client(librdkafka.PRODUCER, properties, hard=hard)
        #: How long a transaction may take, in seconds.
        self.timeout_s = int(properties["transaction.timeout.ms"]) / 1000
        self._queue_bytes = min(QUEUE_BYTES, int(self.timeout_s * _QUEUE_BYTES_A_SECOND))
        # Number and bytes of the records of the last calls of `send`, some of which may be queued.
        self._unconfirmed: deque[tuple[int, int]] = deque()
        librdkafka.connect(self._handle)  # else the first request for the coordinator fails and costs 0.5 s
        try:
            self._check(self._library.rd_kafka_init_transactions(self._handle, int(patience * 1000)))
        except BaseException:
            self.close()
            raise

    @property
    def age_s(self) -> float:
        """Seconds since the last transaction began."""
        return time.monotonic() - self._begin_s

    def begin(self) -> None:
        self._failure = None
        self._begin_s = time.monotonic()
        self._check(self._library.rd_kafka_begin_transaction(self._handle))

    def send(self, topic: str, partition: int, columns: Columns) -> None:
        if topic not in self._topics:
            self._topics[topic] = self._library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        cursor: Longs = np.zeros(2, np.int64)
        arguments: Longs = np.zeros(n.ARGUMENTS, np.int64)
        headers = columns.headers()
        previous_row, progress_s = -1, time.monotonic()
        location = f"{topic}[{partition}]"
        size = int(sizes_of(columns.rows).sum())
        self._make_room(size, location)
        self._unconfirmed.append((len(columns.rows), size))
        while error := n.send(
            self._handle,
            self._topics[topic],
            partition,
            columns.data,
            columns.rows,
            headers,
            arguments,
            cursor,
        ):
            code, text = librdkafka.take_error(error)
            self._wait()
            self._poll_events(10 if code == _QUEUE_FULL else 0)
            if code != _QUEUE_FULL or self._failure:
                raise self._problem(*(self._failure or (code, text)), location)
            if cursor[0] != previous_row:
                previous_row, progress_s = int(cursor[0]), time.monotonic()
            self._require_progress(progress_s, location)

    def _make_room(self, size: int, location: str) -> None:
        """Wait until the queue has room for so many bytes, or is empty."""
        previous, progress_s = -1, time.monotonic()
        while (queued := self._queued()) and queued[1] + size > self._queue_bytes:
            self._wait()
            self._poll_events(10)
            if self._failure:
                raise self._problem(*self._failure, location)
            if queued[0] != previous:
                previous, progress_s = queued[0], time.monotonic()
            self._require_progress(progress_s, location)

    def _queued(self) -> tuple[int, int] | None:
        """The number of records that no broker has confirmed, and about how many bytes they have; None: none.

        Which records these are is not known; the last ones are the most likely.
        """
        count = int(self._library.rd_kafka_outq_len(self._handle))
        later_records = sum(records for records, _ in self._unconfirmed)
        while self._unconfirmed and (later_records := later_records - self._unconfirmed[0][0]) >= count:
            self._unconfirmed.popleft()
        return (count, sum(size for _, size in self._unconfirmed)) if self._unconfirmed else None

    def flush(self) -> None:
        """Wait until the brokers have every record. Takes as long as it must while they accept some."""
        previous, progress_s = -1, time.monotonic()
        while self._library.rd_kafka_flush(self._handle, _POLL_MS):
            self._wait()
            self._poll_events()
            outstanding = int(self._library.rd_kafka_outq_len(self._handle))
            if self._failure:
                break
            if outstanding != previous:
                previous, progress_s = outstanding, time.monotonic()
            self._require_progress(progress_s, self._label)
        self._poll_events()
        if self._failure:
            raise self._problem(*self._failure, self._label)

    def commit(self, group: str, progress: Mapping[Partition, Progress]) -> None:
        self.flush()  # before the commit, whose time is limited
        rd = self._library
        notes = [ctypes.create_string_buffer(entry.note.encode()) for entry in progress.values()]
        partitions = rd.rd_kafka_topic_partition_list_new(max(1, len(progress)))
        elements = []
        group_data = rd.rd_kafka_consumer_group_metadata_new(group.encode())
        for ((topic, partition), entry), note in zip(progress.items(), notes, strict=True):
            element = rd.rd_kafka_topic_partition_list_add(partitions, topic.encode(), partition).contents
            element.offset = entry.position
            # The size includes the zero byte, at which confluent-kafka stops reading the note.
            element.metadata, element.metadata_size = ctypes.addressof(note), len(note.raw)
            elements.append(element)
        if progress:
            # If this raises, nothing is freed: the other thread may still use the memory.
            self._check(self._call_aside(rd.rd_kafka_send_offsets_to_transaction, partitions, group_data))
        rd.rd_kafka_consumer_group_metadata_destroy(group_data)
        for element in elements:
            element.metadata, element.metadata_size = None, 0  # Python's memory, which the list must not free
        rd.rd_kafka_topic_partition_list_destroy(partitions)
        self._check(self._call_aside(rd.rd_kafka_commit_transaction))

    def abort(self, seconds: float | None = None) -> None:
        self._poll_events()
        self._failure = None
        self._check(self._call_aside(self._library.rd_kafka_abort_transaction, seconds=seconds))

    def close(self) -> None:
        if self._handle:
            for topic in self._topics.values():
                self._library.rd_kafka_topic_destroy(topic)
            self._topics.clear()
            librdkafka.drain_events(self._handle)
            self._library.rd_kafka_destroy(self._handle)
            self._handle = 0

    def _call_aside(
        self, action: Callable[..., int | None], *arguments: int, seconds: float | None = None
    ) -> int | None:
        """Run a call on another thread, and raise an error when it takes too long; its thread then continues.

        Commit and abort wait until this thread has polled the reports of failed deliveries. Sending offsets
        waits for a dead coordinator, whatever its timeout.
        """
        call: Future[int | None] = Future()
        patience = self._patience if seconds is None else min(seconds, self._patience)
        handle, milliseconds = self._handle, int(patience * 1000)

        def run() -> None:
            call.set_result(action(handle, *arguments, milliseconds))

        Thread(target=run, name="transaction", daemon=True).start()
        started = time.monotonic()
        while not call.done():
            self._poll_events(20)
            with suppress(Exception):  # a run that is stopped now stops after the call
                self._wait()
            waited = time.monotonic() - librdkafka.silent_since(self._handle, started)
            if waited > patience + min(patience, _LATE_S):
                self._handle = 0  # the other thread still uses the client
                raise stalled(patience, self._failure, self._label, librdkafka.delays())
        return call.result()

    def _require_progress(self, progress_s: float, location: str) -> None:
        if time.monotonic() - librdkafka.silent_since(self._handle, progress_s) > self._patience:
            raise stalled(self._patience, self._failure, location, librdkafka.delays())

    def _poll_events(self, wait_ms: int = 0) -> None:
        if not self._handle:
            raise stalled(self._patience, self._failure, self._label, librdkafka.delays())
        for code, text in librdkafka.drain_events(self._handle, wait_ms):
            # The first failed delivery names the cause; later ones are its consequences.
            if self._failure is None and code not in PASSING | CONSEQUENCES:
                self._failure = (code, text)

    def _check(self, error: int | None) -> None:
        self._poll_events()
        if error:
            code, text = librdkafka.take_error(error)
            raise self._problem(*(self._failure or (code, text)), self._label)

    def _problem(self, code: int, text: str, location: str) -> LakebackupError:
        return transaction_problem(code, text, location, age_s=self.age_s, timeout_s=self.timeout_s)


def outlasting(write: Callable[[Callable[[], None]], T]) -> T:
    """Call `write` until the brokers answer, at most ATTEMPTS times in a row; returns its result.

    `write` resumes after its last commit. It calls its argument after each commit, which resets the count.
    After a restart of its brokers a client may wait forever to commit; a new client does not. Raises
    Unanswered after the last attempt.
    """
    failures = 0

    def reset_failures() -> None:
        nonlocal failures
        failures = 0

    def is_last_attempt(_: RetryCallState) -> bool:
        nonlocal failures
        failures += 1
        return failures >= ATTEMPTS

    attempts = Retrying(retry=retry_if_exception_type(Unanswered), stop=is_last_attempt, reraise=True)
    return attempts(write, reset_failures)


def _engine(
    config: Mapping[str, str], transactional_id: str, patience: float, wait: Callable[[], object]
) -> Engine:
    """Return a producer with the longest transactions that the cluster accepts, or those of `config`."""
    for timeout_ms in TRANSACTION_TIMEOUTS_MS:
        try:
            return Engine(
                {"transaction.timeout.ms": str(timeout_ms), **config}, transactional_id, patience, wait
            )
        except TransactionTooLong:
            if "transaction.timeout.ms" in config or timeout_ms == TRANSACTION_TIMEOUTS_MS[-1]:
                raise
    raise AssertionError("the last attempt returns or raises")


def sizes_of(rows: Longs) -> Longs:
    """The bytes of the keys and values of records."""
    sizes: Longs = np.maximum(rows[:, [KEY_LENGTH, VALUE_LENGTH]], 0).sum(axis=1)
    return sizes


def pieces_of(columns: Columns, size: int) -> Iterator[Columns]:
    """Yield records in pieces of about `size` bytes, or of a single record that is larger."""
    ends = np.cumsum(sizes_of(columns.rows))
    cuts = np.flatnonzero(np.diff(ends // size)) + 1
    for first, end in pairwise([0, *cuts.tolist(), len(columns.rows)]):
        yield replace(columns, rows=columns.rows[first:end])


class RestoreProducer:
    """A restore's producer, as a context manager. Leaving it with an open transaction aborts the transaction.

    Creating it fences every earlier producer with the same `transactional_id`, and ends their open
    transactions. `group`: the group whose committed offsets are the progress. `config`: librdkafka
    properties. `transaction_targets`: the partitions that received records since the last transaction began.
    `patience`: seconds without progress before EnvironmentProblem. `zero_as_one`: librdkafka replaces
    timestamp 0 (the start of 1970) by the present time; without this flag such records are refused, with it
    they get timestamp 1 ms. `wait` is called repeatedly while this waits for the brokers; it may raise.
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
        self._bases: dict[Partition, Base] = {}
        self._existing_shapes: dict[Partition, Longs] = {}
        self.transaction_targets: set[Partition] = set()
        self._engine = _engine(config, transactional_id, patience, wait)
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
            # The coordinator aborts the transaction by itself when its time is up, or when the next
            # producer of this id begins. The error that ended the block matters more.
            if error is None:
                raise
        finally:
            self._engine.close()
            self._target.close()

    @property
    def is_due(self) -> bool:
        """Whether the open transaction is so old that it should be committed now, before its timeout."""
        return self._engine.age_s > self._engine.timeout_s * _DUE_PART

    def pieces(self, columns: Columns) -> Iterator[Columns]:
        """Return the records of a block in pieces, after each of which the transaction may be due."""
        return pieces_of(columns, int(self._engine.timeout_s * _PIECE_BYTES_A_SECOND))

    def begin(self) -> None:
        """Begin a transaction."""
        self._engine.begin()
        self._open = True
        self.transaction_targets = set()

    def produce_block(self, topic: str, partition: int, columns: Columns) -> int:
        """Produce the block's records in order; returns their number.

        Key, value (null or not), headers in order and timestamp (-1: none) are preserved. Raises Refused
        for a timestamp that cannot be preserved, Fenced, EnvironmentProblem.
        """
        rows = columns.rows
        if not len(rows):
            return 0
        zero_offsets = rows[rows[:, TIMESTAMP] == 0, OFFSET]
        if len(zero_offsets) and not self._zero_as_one:
            raise Refused(
                f"{topic}[{partition}]: the record of source offset {zero_offsets[0]} has timestamp 0, "
                "which the Kafka client would replace by the present time.",
                hint="Allow such records to be written with timestamp 1 (ms) instead.",
            )
        target = (topic, partition)
        missing = replace(columns, rows=rows[self._count_existing(target, rows) :])
        if len(missing.rows):
            self._engine.send(topic, partition, missing)
        self.transaction_targets.add(target)
        return len(rows)

    def commit(self, progress: Mapping[Partition, Progress]) -> Mapping[Partition, Ends]:
        """Commit the records together with `progress`, and wait until readers of committed records see them.

        Returns the ends of the partitions by then.
        """
        try:
            self._commit_offsets(
                {target: CommitNote(entry, self._bases.get(target)) for target, entry in progress.items()}
            )
        except Fenced:
            self._open = False  # the newer producer ends the transaction
            raise
        self._open = False
        highs = {target: ends.high for target, ends in self._target.ends(progress).items()}
        visible_ends = self._target.wait(highs)
        for target, entry in progress.items():
            if not len(self._existing_shapes.get(target, ())):
                self._bases[target] = Base(entry, highs[target])
        return visible_ends

    def abort(self) -> None:
        """Abort the open transaction: no reader of committed records will see its records."""
        self._open = False
        self._engine.abort()

    def ends(self, targets: Collection[Partition]) -> Mapping[Partition, Ends]:
        """Return where readers of committed records stop in target partitions, and where these end."""
        return self._target.ends(targets)

    def base(self, target: Partition) -> int:
        """Return an offset of a target partition, once resumed, that no record sent later lies before."""
        return self._bases[target].offset

    def filled(self, ends: Mapping[Partition, Ends]) -> set[Partition]:
        """Return the partitions, of which `ends` are the ends, in which readers of committed records find any
        before the base."""
        lows = self._target.begins(ends)
        highs = {target: min(self.base(target), target_ends.stable) for target, target_ends in ends.items()}
        return {t for t in ends if lows[t] < highs[t] and self._has_records(t, lows[t], highs[t])}

    def begins(self, target: Partition) -> int:
        """Return an offset of a target partition, once resumed, that no record produced next lies before.

        That includes the records that are in the partition already and are not sent again.
        """
        if len(self._existing_shapes.get(target, ())):
            return self._bases[target].offset
        return self._target.ends([target])[target].high

    def committed(self, topic: str, partition: int) -> Progress | None:
        """Return the progress that was committed last for this target partition; None when there was none.

        Raises EnvironmentProblem when the brokers lost the end of a transaction in the partition.
        """
        target = (topic, partition)
        if self._target.offsets_pending([target]):
            # Writing more would end that transaction too, whether it was to commit or to abort.
            raise EnvironmentProblem(f"{topic}[{partition}]: the brokers lost the end of a transaction here.")
        last = self._target.committed([target])[target]
        return last.progress if last else None

    def resume(self, targets: Collection[Partition]) -> Mapping[Partition, Progress | None]:
        """Return where to continue in each target partition, None at its beginning; ends open transactions.

        This producer's id has no transaction left that its coordinator would still end. So a transaction that
        is open here has lost its marker. Whether it was to commit or to abort is unknown, and its other
        partitions may have their markers. So it is aborted, and the restore of its partitions returns to the
        base of their last progress. Records after the base that are in a partition already are not sent
        again.

        `targets` are all partitions to which this producer's id ever wrote. An offset commit that waits for
        its marker concerns them all, since the next marker ends it for all of them.
        """
        last_notes, ends = self._target.committed(targets), self._target.ends(targets)
        pending = any(last_notes.values()) and self._target.offsets_pending(targets)
        bases: dict[Partition, Base] = {}
        for target in targets:
            last, high = last_notes[target], ends[target].high
            if last and not (last.repairing or ends[target].stable < high or pending):
                self._bases[target] = Base(last.progress, high)
            else:
                bases[target] = (last and last.base) or Base(last.progress if last else Progress(0, ""), high)
        if bases:
            self._repair(bases, ends, [target for target in bases if last_notes[target]])
        return {
            target: self._bases[target].progress_before if last_notes[target] else None for target in targets
        }

    def _repair(
        self, bases: Mapping[Partition, Base], ends: Mapping[Partition, Ends], started: Collection[Partition]
    ) -> None:
        """Take partitions back to their bases. `started`: those in which records may have been committed."""
        # The bases are committed first: after the abort the last progress may be too far.
        self._engine.begin()
        self._commit_offsets(
            {target: CommitNote(base.progress_before, base, repairing=True) for target, base in bases.items()}
        )
        self._target.wait(dict.fromkeys(bases, 0))
        if interrupted := [target for target in bases if ends[target].stable < ends[target].high]:
            self._abort_open(interrupted)
        highs = {target: target_ends.high for target, target_ends in self._target.ends(started).items()}
        self._target.wait(highs)
        for target, high in highs.items():
            self._existing_shapes[target] = self._read_shapes(target, bases[target].offset, high)
        self._bases.update(bases)

    def _has_records(self, target: Partition, start: int, end: int) -> bool:
        with closing(reader(self._config).blocks(*target, start, end, patience=self._patience)) as blocks:
            return next(blocks, None) is not None

    def _commit_offsets(self, notes: Mapping[Partition, CommitNote]) -> None:
        self._engine.commit(
            self._group,
            {target: Progress(entry.progress.position, entry.note()) for target, entry in notes.items()},
        )

    def _abort_open(self, targets: Collection[Partition]) -> None:
        """Abort open transactions in partitions: a marker ends all that its producer id began there."""
        self._engine.begin()
        for target in targets:
            record = encode_record(*target, 0, int(time.time() * 1000), 0, b"", b"", [])
            self._engine.send(*target, decode_block(record, 1))
        self._engine.flush()  # only partitions whose broker has a record get the marker
        self._engine.abort()

    def _read_shapes(self, target: Partition, start: int, end: int) -> Longs:
        """Return timestamp and lengths of key and value of the committed records in [start, end)."""
        shapes = [
            block.columns().rows[:, SHAPE]
            for block in reader(self._config).blocks(*target, start, end, patience=self._patience)
        ]
        return np.concatenate(shapes) if shapes else np.empty((0, len(SHAPE)), np.int64)

    def _count_existing(self, target: Partition, rows: Longs) -> int:
        """Return how many of the records to send are in the partition already.

        Raises Refused when other records are there instead.
        """
        shapes = self._existing_shapes.get(target)
        if shapes is None or not len(shapes):
            return 0
        count = min(len(shapes), len(rows))
        new_shapes = rows[:count, SHAPE]
        # Timestamps of records that have none (-1, 0) are not compared.
        new_shapes[:, 0] = np.where(new_shapes[:, 0] > 0, new_shapes[:, 0], shapes[:count, 0])
        if not np.array_equal(new_shapes, shapes[:count]):
            raise Refused(
                f"{target[0]}[{target[1]}]: brokers lost the end of a transaction, and other records were "
                "written among those of this restore.",
                hint="Restore into another topic.",
            )
        self._existing_shapes[target] = shapes[count:]
        return count
