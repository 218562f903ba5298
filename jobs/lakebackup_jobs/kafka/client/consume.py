"""Copies a range of offsets of a Kafka partition into Avro files, with no Python object per record.

A backup's task calls `copy_range`. A `Reader` fetches batches of messages from librdkafka, and compiled code
encodes them into blocks. Another thread compresses the blocks while the next ones are read.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from threading import Lock, local
from typing import TypeVar, cast

import numpy as np

from lakebackup.errors import Refused, UsageProblem
from lakebackup.rows.backups import Position
from lakebackup_jobs.kafka.admin.problems import (
    PASSING,
    UNKNOWN_TOPIC,
    fatal_event,
    partition_missing,
    problem,
    stalled,
)
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.client import native as n
from lakebackup_jobs.kafka.client.librdkafka import PATIENCE, READING, READING_TUNING
from lakebackup_jobs.kafka.format.container import (
    DEFAULT_CODEC,
    FileSealer,
    FileSink,
    FileWriter,
    compressor,
    record_prefix,
)
from lakebackup_jobs.kafka.format.offsets_log import isolation_of
from lakebackup_jobs.kafka.format.records import Block, BlockStats, FileStats, Tally
from lakebackup_jobs.kafka.memory import Bytes, Longs

BLOCK_BYTES = 4 << 20
TARGET_BYTES = 128 << 20
#: The most times that one range is cut by time: timestamps may be in any order.
MOST_ROLLS = 100
LATEST = 2**63 - 1
#: Seconds without a message after which a reader asks the broker whether the partition still exists.
ASK_AFTER = 5.0
#: A block has room for one key's hash per this many bytes, and ends when it has no more. Records are larger.
BYTES_A_HASH = 16
# Partitions whose bytes are counted, threads that count them, and how many are enough for another thread.
_COUNTED_PARTITIONS = 64
_COUNTING_THREADS = 8
_COUNTED_BY_THREAD = 16
# To hand a smaller block over to another thread takes longer than to compress it.
_HANDED_OVER_BYTES = 64 << 10
T = TypeVar("T")
Progress = Callable[[int, int], None]
#: Called with each block before it is written to a file. It returns the block to write instead, or None to
#: write none.
Look = Callable[[Block], Block | None]


class Roll:
    """Decides where a file ends by time: before a record that is more than `span_ms` younger than its first.

    Old records among young ones end no file. So a file whose timestamps rise spans at most `span_ms`, and
    timestamps that jump to and fro do not give each record its own file. With None, no file ends by time.
    """

    def __init__(self, span_ms: int | None) -> None:
        self._span_ms, self._rolls = span_ms, 0
        self.youngest = LATEST if span_ms is None else -LATEST
        self.due = False

    def over(self, ts: int) -> None:
        """Begin another file with a record whose timestamp, `ts` (ms), is above `youngest`."""
        self._rolls += 1
        self.due = True
        self.youngest = LATEST if self._rolls > MOST_ROLLS else min(LATEST, ts + (self._span_ms or 0))

    def take_due(self) -> bool:
        """Return whether the next block begins a file. Call it once for each block: it resets `due`."""
        due, self.due = self.due, False
        return due


class Reader:
    """A client of one cluster that reads one range after another, through librdkafka's own functions."""

    def __init__(self, config: Mapping[str, str], isolation: str) -> None:
        self._config = config
        self._process, self._handle = os.getpid(), 0
        self._library = librdkafka.load()
        hard = {**READING, "isolation.level": isolation}
        self._handle = librdkafka.new_client(librdkafka.CONSUMER, {**READING_TUNING, **config}, hard=hard)
        self._last_error: tuple[int, str] | None = None

    def close(self) -> None:
        if self._handle and self._process == os.getpid():  # a forked process lacks the client's threads
            self._library.rd_kafka_destroy(self._handle)
        self._handle = 0

    __del__ = close

    def blocks(  # noqa: C901 (one loop over all that a batch can contain)
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        patience: float = PATIENCE,
        on_progress: Progress | None = None,
        roll_ms: int | None = None,
    ) -> Generator[Block, None, None]:
        """Yield the records with offsets in [start, end) as version 2 blocks of about BLOCK_BYTES, in order.

        With `roll_ms`, a block begins wherever `Roll` ends a file, and has `opens` set.
        Offsets may be missing (control records, aborted transactions, compaction). Raises
        Purged, NotFound, EnvironmentProblem; the last also after `patience` seconds without any progress.
        Raises Refused where a header's name is not text.
        """
        if start >= end:
            return
        rd, roll = self._library, Roll(roll_ms)
        messages: Longs = np.zeros(16384, np.int64)
        scratch: Longs = np.zeros(5, np.int64)
        state: Longs = np.zeros(n.STATE, np.int64)
        state[n.NEXT], state[n.STOP], state[n.YOUNGEST] = start, end, roll.youngest
        prefix: Bytes = np.frombuffer(record_prefix(topic, partition), np.uint8).copy()
        block: Bytes = np.empty(BLOCK_BYTES, np.uint8)
        hashes: Longs = np.empty(BLOCK_BYTES // BYTES_A_HASH, np.int64)
        counts = Tally()
        batch_size, count, progress_s, last_position = 256, 0, time.monotonic(), start
        check_s = progress_s - ASK_AFTER
        self._last_error = None
        with self._consuming(topic, partition, start) as queue:
            try:
                while state[n.WHY] != n.RANGE_END:
                    queue_length = rd.rd_kafka_queue_length(queue)
                    limit, wait_ms = (min(batch_size, queue_length), 0) if queue_length else (1, 100)
                    state[n.MESSAGE], state[n.WHY] = 0, n.USED_UP
                    count = rd.rd_kafka_consume_batch_queue(queue, wait_ms, messages.ctypes.data, limit)
                    if count <= 0:
                        count = 0
                        position = self._position(topic, partition)
                        if position >= end:
                            break
                        if on_progress is not None:
                            on_progress(0, 0)  # it raises when the task shall stop
                        time_s = time.monotonic()
                        if position > last_position:
                            last_position, progress_s = position, time_s
                        location = f"{topic}[{partition}] at offset {state[n.NEXT]}"
                        self._check_events(location, progress_s, patience)
                        if (
                            time_s - progress_s > min(ASK_AFTER, patience / 2)
                            and time_s > check_s + ASK_AFTER
                        ):
                            check_s = time_s
                            self._check_partition(topic, partition, location)
                        continue
                    earlier_records, earlier_bytes = int(counts.sums[0]), int(state[n.POSITION])
                    batch_records = batch_bytes = 0
                    while True:
                        n.encode(
                            messages, count, block, state, prefix, scratch, counts.sums, counts.low,
                            counts.high, hashes
                        )  # fmt: skip
                        reason = int(state[n.WHY])
                        if reason == n.FAILED:
                            self._handle_error(
                                int(messages[state[n.MESSAGE]]), topic, partition, int(state[n.NEXT])
                            )
                            n.destroy(messages, state[n.MESSAGE], state[n.MESSAGE] + 1)
                            state[n.MESSAGE] += 1
                        elif reason == n.BLOCK_SMALL:
                            block = np.empty(int(state[n.NEED]), np.uint8)
                        elif reason == n.BLOCK_FULL or (reason == n.TOO_YOUNG and state[n.POSITION]):
                            stats = cast("BlockStats", counts.stats())
                            batch_records, batch_bytes = (
                                batch_records + stats.entries,
                                batch_bytes + int(state[n.POSITION]),
                            )
                            key_hashes = hashes[: stats.entries - stats.null_keys]
                            yield Block(block[: state[n.POSITION]], stats, roll.take_due(), key_hashes)
                            block, counts = np.empty(BLOCK_BYTES, np.uint8), Tally()
                            hashes = np.empty(len(hashes), np.int64)
                            state[n.POSITION] = 0
                        elif reason == n.TOO_YOUNG:
                            roll.over(int(state[n.NEED]))
                            state[n.YOUNGEST] = roll.youngest
                        elif reason == n.NOT_TEXT:
                            raise _not_text(topic, partition, int(state[n.NEED]))
                        else:
                            break
                    batch_records += int(counts.sums[0]) - earlier_records
                    batch_bytes += int(state[n.POSITION]) - earlier_bytes
                    if batch_records:
                        progress_s = time.monotonic()
                        batch_size = max(
                            8, min(len(messages), BLOCK_BYTES * batch_records // max(1, batch_bytes))
                        )
                        if on_progress is not None:
                            on_progress(batch_records, batch_bytes)
                last_stats = counts.stats()
                if last_stats is not None:
                    key_hashes = hashes[: last_stats.entries - last_stats.null_keys]
                    yield Block(block[: state[n.POSITION]], last_stats, roll.take_due(), key_hashes)
            finally:
                n.destroy(messages, state[n.MESSAGE], count)

    @contextmanager
    def _consuming(self, topic: str, partition: int, start: int) -> Iterator[int]:
        """Consume a partition from offset `start` on while the block runs; yields its message queue."""
        rd = self._library
        handle = rd.rd_kafka_topic_new(self._handle, topic.encode(), None)
        if not handle:
            raise UsageProblem(f"{topic!r} is not a topic's name.")
        queue = rd.rd_kafka_queue_new(self._handle)
        try:
            if rd.rd_kafka_consume_start_queue(handle, partition, start, queue):
                code = rd.rd_kafka_last_error()
                raise problem(
                    code, rd.rd_kafka_err2str(code).decode(), f"{topic}[{partition}] from offset {start}"
                )
            try:
                yield queue
            finally:
                rd.rd_kafka_consume_stop(handle, partition)
        finally:
            rd.rd_kafka_queue_destroy(queue)
            rd.rd_kafka_topic_destroy(handle)

    def _position(self, topic: str, partition: int) -> int:
        """The offset after the last one consumed, -1 if unknown. Control records, which no batch contains,
        advance it too."""
        rd = self._library
        partitions = rd.rd_kafka_topic_partition_list_new(1)
        try:
            element = rd.rd_kafka_topic_partition_list_add(partitions, topic.encode(), partition)
            return -1 if rd.rd_kafka_position(self._handle, partitions) else int(element.contents.offset)
        finally:
            rd.rd_kafka_topic_partition_list_destroy(partitions)

    def _check_events(self, location: str, progress_s: float, patience: float) -> None:
        """Raise a fatal error that the client reports, or an error after `patience` seconds without progress.

        `progress_s`: when the client last made progress (monotonic seconds).
        """
        for code, text in librdkafka.drain_events(self._handle):
            self._last_error = (code, text)
            if fatal_event(code):
                raise problem(code, text, location)
        if time.monotonic() - librdkafka.silent_since(self._handle, progress_s) > patience:
            raise stalled(patience, self._last_error, location, librdkafka.delays())

    def _check_partition(self, topic: str, partition: int, location: str) -> None:
        """Raise an error if the partition no longer exists.

        For a topic that was deleted before reading began, the client reports no error and gets no messages.
        """
        ends = (ctypes.c_int64 * 2)()
        low, high = ctypes.byref(ends, 0), ctypes.byref(ends, 8)
        code = self._library.rd_kafka_query_watermark_offsets(
            self._handle, topic.encode(), partition, low, high, 1000
        )
        if code in UNKNOWN_TOPIC and partition_missing(self._config, topic, partition):
            raise problem(code, self._library.rd_kafka_err2str(code).decode(), location)

    def _handle_error(self, address: int, topic: str, partition: int, offset: int) -> None:
        """Raise the error that the message at `address` carries, unless it may pass."""
        code = librdkafka.Message.from_address(address).err
        text = (self._library.rd_kafka_message_errstr(address) or b"").decode(errors="replace")
        if code in UNKNOWN_TOPIC:
            if not partition_missing(self._config, topic, partition):
                return  # the client continues when the brokers are back
        else:
            self._last_error = (code, text)
            if code in PASSING:
                return
        raise problem(code, text, f"{topic}[{partition}] at offset {offset}")


def _not_text(topic: str, partition: int, offset: int) -> Refused:
    return Refused(
        f"Topic {topic}, partition {partition}, offset {offset}: the name of a header is not UTF-8 text, or "
        "has a NUL byte in it. Kafka's protocol wants text there, and so do data files.",
        hint="Back up the topics without this one, or delete its records up to this offset "
        "(kafka-delete-records).",
    )


class _Clients(local):
    """The clients of this thread, which end with it, by their settings.

    `topic_ids`: for each client, the id of each topic that it has read, by name.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.readers: dict[tuple[object, ...], Reader] = {}
        self.topic_ids: dict[tuple[object, ...], dict[str, str]] = {}


_clients = _Clients()


def reader(
    config: Mapping[str, str], isolation: str = "read_committed", topic: tuple[str, str] | None = None
) -> Reader:
    """Return this thread's client for these settings, which is created at first use.

    It is closed when the thread ends. One client cannot read two ranges of one partition at once. `topic`:
    name and id of the topic to read. A client that has read another topic of that name is replaced: in the
    new topic leader epochs begin at 0 again, so the client would take them for outdated and get no records.
    Raises UsageProblem for an unknown isolation.
    """
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageProblem(f"isolation is read_committed or read_uncommitted, not {isolation!r}.")
    key = (isolation, *sorted(config.items()))
    if _clients.process != os.getpid():
        _clients.__init__()  # type: ignore[misc]
    topic_ids = _clients.topic_ids.setdefault(key, {})
    if topic and topic_ids.setdefault(*topic) != topic[1]:
        if key in _clients.readers:
            _clients.readers.pop(key).close()
        topic_ids.clear()
        topic_ids.setdefault(*topic)
    if key not in _clients.readers:
        _clients.readers[key] = Reader(config, isolation)
    return _clients.readers[key]


@atexit.register
def close_readers() -> None:
    """Close the clients of this thread."""
    while _clients.readers:
        _clients.readers.popitem()[1].close()


def bytes_of(
    config: Mapping[str, str], isolation: str, positions: Sequence[Position], most: int
) -> int | None:
    """Return the size in bytes, before compression, of the records in `positions`; None if above `most`.

    Of more than _COUNTED_PARTITIONS partitions, it is estimated from those of that many, chosen by their
    offsets. Reading stops above `most`. Raises what Reader.blocks raises.
    """
    offsets = sum(map(_offsets, positions))
    if offsets * BYTES_A_HASH > most:
        return None
    sample = _sample(positions, offsets)
    total, total_lock = 0, Lock()

    def add_bytes(p: Position) -> None:
        nonlocal total
        client = reader(config, isolation_of(p.scope, isolation), (p.scope, p.epoch))
        with closing(client.blocks(p.scope, int(p.region), p.start_position, p.end_position)) as blocks:
            for block in blocks:
                with total_lock:
                    total += len(block.data)
                if total > most:
                    return

    # Each partition waits for its broker, and each thread has a client of its own.
    threads = min(_COUNTING_THREADS, 1 + len(sample) // _COUNTED_BY_THREAD)
    with ThreadPoolExecutor(threads, "count") as pool:
        for _ in pool.map(lambda p: None if total > most else add_bytes(p), sample):
            pass
    size = total * offsets // max(1, sum(map(_offsets, sample)))
    return None if size > most else size


def _offsets(position: Position) -> int:
    return position.end_position - position.start_position


def _sample(positions: Sequence[Position], offsets: int) -> list[Position]:
    """Return the positions at _COUNTED_PARTITIONS evenly spaced ones of all their `offsets`."""
    if len(positions) <= _COUNTED_PARTITIONS:
        return list(positions)
    ends = np.cumsum([_offsets(p) for p in positions])
    middles = (np.arange(_COUNTED_PARTITIONS) + 0.5) * (offsets / _COUNTED_PARTITIONS)
    return [positions[index] for index in np.unique(np.searchsorted(ends, middles, "right"))]


def _completed_future(result: T) -> Future[T]:
    future = Future[T]()
    future.set_result(result)
    return future


def copy_range(
    config: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    new_file: Callable[[], FileSink],
    *,
    isolation: str = "read_committed",
    codec: str = DEFAULT_CODEC,
    compression_level: int | None = None,
    target_bytes: int = TARGET_BYTES,
    roll_ms: int | None = None,
    patience: float = PATIENCE,
    on_progress: Progress | None = None,
    metadata: Mapping[str, str] | None = None,
    topic_id: str | None = None,
    look: Look | None = None,
    seal: FileSealer | None = None,
) -> Iterator[FileStats]:
    """Copy the records with offsets in [start, end) into Avro files of about `target_bytes`, one by one.

    With `roll_ms`, files also end by time (see Roll). `new_file` makes a file's sink when the first block is
    ready. When the figures of a file are yielded, every byte is in its sink, and the caller commits the sink
    before it continues. Without records there is no file.

    `on_progress(records, raw bytes)` is called for each batch. `config`: librdkafka properties. `look` (see
    Look) is called with each block in order, on the thread that compresses it. Raises what Reader.blocks and
    `look` raise. `seal`: see FileWriter.
    """
    compress = compressor(codec, compression_level)
    client = reader(config, isolation, (topic, topic_id) if topic_id else None)

    def prepare(block: Block) -> tuple[Block, bytes] | None:
        file_block = block if look is None else look(block)
        return None if file_block is None else (file_block, compress(file_block.data))

    file: FileWriter | None = None
    opens = False
    # One thread compresses large blocks while this one reads, hashes and writes. At most two wait for it.
    with (
        closing(
            client.blocks(
                topic, partition, start, end, patience=patience, on_progress=on_progress, roll_ms=roll_ms
            )
        ) as blocks,
        ThreadPoolExecutor(1, "compress") as worker,
    ):
        pending: deque[tuple[Block, Future[tuple[Block, bytes] | None]]] = deque()
        reading = True
        while reading or pending:
            block = next(blocks, None) if reading else None
            reading = block is not None
            if block is not None:
                if pending or len(block.data) >= _HANDED_OVER_BYTES:
                    pending.append((block, worker.submit(prepare, block)))
                else:
                    pending.append((block, _completed_future(prepare(block))))
            while pending and (not reading or len(pending) > 2):
                source_block, future = pending.popleft()
                opens |= source_block.opens
                compressed_block = future.result()
                if compressed_block is None:
                    continue
                if file is not None and opens:
                    stats, file = file.finish(), None
                    yield stats
                if file is None:
                    sink = new_file()
                    file = FileWriter(
                        sink, codec=codec, level=compression_level, metadata=metadata, seal=seal
                    )
                file.write_compressed(*compressed_block)
                opens = False
                if file.bytes >= target_bytes:
                    stats, file = file.finish(), None
                    yield stats
    if file is not None:
        yield file.finish()
