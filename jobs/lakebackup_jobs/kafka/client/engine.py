"""A transactional producer of Kafka records, by librdkafka's own functions.

Python's client copies each record; this one hands a whole block to librdkafka. How much its queue may hold
depends on how long a transaction may take, so that a commit can send the rest in time.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from threading import Thread

import numpy as np

from lakebackup.errors import LakebackupError
from lakebackup_jobs.kafka.admin.committed import Partition, Progress
from lakebackup_jobs.kafka.admin.problems import (
    CONSEQUENCES,
    PASSING,
    TransactionTooLong,
    stalled,
    transaction_problem,
)
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.client import native as n
from lakebackup_jobs.kafka.client.librdkafka import TRANSACTION_TIMEOUTS_MS, WRITING, writing_tuning
from lakebackup_jobs.kafka.format.records import KEY_LENGTH, VALUE_LENGTH, Columns
from lakebackup_jobs.kafka.memory import Longs

_QUEUE_FULL = -184
# How long one call of flush waits before it checks for errors.
_POLL_MS = 100
# How long a call may take beyond its own time limit.
_LATE_S = 30.0
#: The most bytes of records that a producer queues, unless a single record is larger.
QUEUE_BYTES = 64 << 20
# The same for each second that a transaction may take, so that a commit can send what is queued in time. And
# how many bytes are sent between two looks at the clock. Both together allow a quota of 100 kB/s.
_QUEUE_BYTES_A_SECOND = 64 << 10
_PIECE_BYTES_A_SECOND = 16 << 10
# The part of its timeout after which a transaction is due. The rest is for what is queued, and the commit.
_DUE_PART = 0.25


class Engine:
    """A transactional producer, through librdkafka's own functions. Its methods raise LakebackupErrors."""

    def __init__(
        self,
        config: Mapping[str, str],
        transactional_id: str,
        patience: float,
        wait: Callable[[], object],
        label: str,
    ) -> None:
        self._wait = wait
        self._library = librdkafka.load()
        self._patience = patience
        self._topics: dict[str, int] = {}
        self._failure: tuple[int, str] | None = None
        self._label = label
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

    @property
    def is_due(self) -> bool:
        """Whether the open transaction is so old that it should be committed now, before its timeout."""
        return self.age_s > self.timeout_s * _DUE_PART

    def pieces(self, columns: Columns) -> Iterator[Columns]:
        """Return the records of a block in pieces, after each of which the transaction may be due."""
        return pieces_of(columns, int(self.timeout_s * _PIECE_BYTES_A_SECOND))

    def begin(self) -> None:
        """Begin a transaction."""
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


def open_engine(
    config: Mapping[str, str], transactional_id: str, patience: float, wait: Callable[[], object], label: str
) -> Engine:
    """Return a producer with the longest transactions that the cluster accepts, or those of `config`.

    `label`: what errors say it was doing.
    """
    for timeout_ms in TRANSACTION_TIMEOUTS_MS:
        try:
            timeout = {"transaction.timeout.ms": str(timeout_ms)}
            return Engine({**timeout, **config}, transactional_id, patience, wait, label)
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
