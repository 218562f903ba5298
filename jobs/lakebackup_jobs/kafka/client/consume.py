"""From a range of offsets in Kafka to finished Avro files, with no Python object per record.

`copy_range` is what a backup's task calls. Compiled code encodes the batches that librdkafka hands out.
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
from threading import local
from typing import TYPE_CHECKING, cast

import numpy as np

from lakebackup.errors import Refused, UsageProblem
from lakebackup_jobs.kafka.admin.problems import (
    PASSING,
    UNKNOWN_TOPIC,
    fatal_event,
    partition_missing,
    problem,
    stalled,
)
from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.client.librdkafka import PATIENCE, READING, READING_TUNING
from lakebackup_jobs.kafka.format.container import (
    DEFAULT_CODEC,
    FileSink,
    FileWriter,
    compressor,
    record_prefix,
)
from lakebackup_jobs.kafka.format.offsets_log import isolation_of
from lakebackup_jobs.kafka.format.records import Block, Tally

if TYPE_CHECKING:
    from lakebackup.rows.backups import Position
    from lakebackup_jobs.kafka.format.records import BlockStats, FileStats
    from lakebackup_jobs.kafka.memory import Bytes, Longs

BLOCK_BYTES = 4 << 20
TARGET_BYTES = 128 << 20
#: A range is cut by time at most so often: timestamps may be anything.
MOST_ROLLS = 100
LATEST = 2**63 - 1
#: Seconds of silence after which the broker is asked whether the partition still exists.
ASK_AFTER = 5.0
#: A block ends where its keys' hashes have no more room; records have more bytes than this.
BYTES_A_HASH = 16
Progress = Callable[[int, int], None]
#: Called with each block on its way into a file; returns what is written in its place, None: nothing.
Look = Callable[[Block], Block | None]


class Roll:
    """When a file is closed because of time: at a record more than `span_ms` younger than its first one.

    Old records among young ones close nothing: a file whose timestamps go up spans at most `span_ms`, and
    timestamps that jump to and fro do not make a file of each record.
    """

    def __init__(self, span_ms: int | None) -> None:
        self._span_ms, self._rolls = span_ms, 0
        self.youngest = LATEST if span_ms is None else -LATEST
        self.due = False

    def over(self, ts: int) -> None:
        """A record of time `ts`, which is above `youngest`, begins another file."""
        self._rolls += 1
        self.due = True
        self.youngest = LATEST if self._rolls > MOST_ROLLS else min(LATEST, ts + (self._span_ms or 0))

    def take(self) -> bool:
        """Whether the next block opens a file; asked once for each block."""
        due, self.due = self.due, False
        return due


class Reader:
    """A client of one cluster that serves one range after another, through librdkafka's own functions."""

    def __init__(self, config: Mapping[str, str], isolation: str) -> None:
        self._config = config
        self._process, self._handle = os.getpid(), 0
        self._library = librdkafka.load()
        hard = {**READING, "isolation.level": isolation}
        self._handle = librdkafka.new_client(librdkafka.CONSUMER, {**READING_TUNING, **config}, hard=hard)
        self._word: tuple[int, str] | None = None

    def close(self) -> None:
        if self._handle and self._process == os.getpid():  # a fork has none of its threads
            self._library.rd_kafka_destroy(self._handle)
        self._handle = 0

    __del__ = close

    def blocks(  # noqa: C901 (one loop over what a batch may bring)
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
        """The records with offsets in [start, end) as version 2 blocks of about BLOCK_BYTES, in order.

        With `roll_ms`, a block that `opens` a file begins where `Roll` closes the one before.
        Offsets may be missing (control records, aborted transactions, compaction). Raises
        Purged, NotFound, EnvironmentProblem; the last too after `patience` seconds without any progress.
        Raises Refused where a header's name is not text.
        """
        from lakebackup_jobs.kafka.client import native as n

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
        counted = Tally()
        batch, got, moved, seen = 256, 0, time.monotonic(), start
        asked = moved - ASK_AFTER
        self._word = None
        with self._consuming(topic, partition, start) as queue:
            try:
                while state[n.WHY] != n.ENDED:
                    waiting = rd.rd_kafka_queue_length(queue)
                    size, wait = (min(batch, waiting), 0) if waiting else (1, 100)
                    state[n.TAKEN], state[n.WHY] = 0, n.USED_UP
                    got = rd.rd_kafka_consume_batch_queue(queue, wait, messages.ctypes.data, size)
                    if got <= 0:
                        got = 0
                        position = self._position(topic, partition)
                        if position >= end:
                            break
                        if on_progress is not None:
                            on_progress(0, 0)  # where a task is stopped
                        now = time.monotonic()
                        if position > seen:
                            seen, moved = position, now
                        where = f"{topic}[{partition}] at offset {state[n.NEXT]}"
                        self._listen(where, moved, patience)
                        if now - moved > min(ASK_AFTER, patience / 2) and now > asked + ASK_AFTER:
                            asked = now
                            self._ask(topic, partition, where)
                        continue
                    records, filled = int(counted.sums[0]), int(state[n.POSITION])
                    done = flushed = 0
                    while True:
                        n.encode(
                            messages, got, block, state, prefix, scratch, counted.sums, counted.low,
                            counted.high, hashes
                        )  # fmt: skip
                        why = int(state[n.WHY])
                        if why == n.FAILED:
                            self._refuse(int(messages[state[n.TAKEN]]), topic, partition, int(state[n.NEXT]))
                            n.destroy(messages, state[n.TAKEN], state[n.TAKEN] + 1)
                            state[n.TAKEN] += 1
                        elif why == n.BLOCK_SMALL:
                            block = np.empty(int(state[n.NEED]), np.uint8)
                        elif why == n.BLOCK_FULL or (why == n.TOO_YOUNG and state[n.POSITION]):
                            stats = cast("BlockStats", counted.stats())
                            done, flushed = done + stats.entries, flushed + int(state[n.POSITION])
                            keys = hashes[: stats.entries - stats.null_keys]
                            yield Block(block[: state[n.POSITION]], stats, roll.take(), keys)
                            block, counted = np.empty(BLOCK_BYTES, np.uint8), Tally()
                            hashes = np.empty(len(hashes), np.int64)
                            state[n.POSITION] = 0
                        elif why == n.TOO_YOUNG:
                            roll.over(int(state[n.NEED]))
                            state[n.YOUNGEST] = roll.youngest
                        elif why == n.NOT_TEXT:
                            raise _not_text(topic, partition, int(state[n.NEED]))
                        else:
                            break
                    done += int(counted.sums[0]) - records
                    flushed += int(state[n.POSITION]) - filled
                    if done:
                        moved = time.monotonic()
                        batch = max(8, min(len(messages), BLOCK_BYTES * done // max(1, flushed)))
                        if on_progress is not None:
                            on_progress(done, flushed)
                rest = counted.stats()
                if rest is not None:
                    keys = hashes[: rest.entries - rest.null_keys]
                    yield Block(block[: state[n.POSITION]], rest, roll.take(), keys)
            finally:
                n.destroy(messages, state[n.TAKEN], got)

    @contextmanager
    def _consuming(self, topic: str, partition: int, start: int) -> Iterator[int]:
        """The queue that a partition's messages from `start` on arrive in."""
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
        """The next offset to be handed out; control records, which are never seen, move it too."""
        rd = self._library
        wanted = rd.rd_kafka_topic_partition_list_new(1)
        try:
            element = rd.rd_kafka_topic_partition_list_add(wanted, topic.encode(), partition)
            return -1 if rd.rd_kafka_position(self._handle, wanted) else int(element.contents.offset)
        finally:
            rd.rd_kafka_topic_partition_list_destroy(wanted)

    def _listen(self, where: str, moved: float, patience: float) -> None:
        """Raise when what the client reports leaves no hope, or `patience` has passed since it `moved`."""
        for code, text in librdkafka.drain_events(self._handle):
            self._word = (code, text)
            if fatal_event(code):
                raise problem(code, text, where)
        if time.monotonic() - librdkafka.silent_since(self._handle, moved) > patience:
            raise stalled(patience, self._word, where, librdkafka.delays())

    def _ask(self, topic: str, partition: int, where: str) -> None:
        """A topic deleted before reading began gives no error by itself, only silence."""
        ends = (ctypes.c_int64 * 2)()
        low, high = ctypes.byref(ends, 0), ctypes.byref(ends, 8)
        code = self._library.rd_kafka_query_watermark_offsets(
            self._handle, topic.encode(), partition, low, high, 1000
        )
        if code in UNKNOWN_TOPIC and partition_missing(self._config, topic, partition):
            raise problem(code, self._library.rd_kafka_err2str(code).decode(), where)

    def _refuse(self, address: int, topic: str, partition: int, offset: int) -> None:
        code = librdkafka.Message.from_address(address).err
        text = (self._library.rd_kafka_message_errstr(address) or b"").decode(errors="replace")
        if code in UNKNOWN_TOPIC:
            if not partition_missing(self._config, topic, partition):
                return  # the client reads on when the brokers are back
        else:
            self._word = (code, text)
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
    """The clients of this thread, which end with it. `read`: the ids of the topics that each has read."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.readers: dict[tuple[object, ...], Reader] = {}
        self.read: dict[tuple[object, ...], dict[str, str]] = {}


_clients = _Clients()


def reader(
    config: Mapping[str, str], isolation: str = "read_committed", topic: tuple[str, str] | None = None
) -> Reader:
    """This thread's client for these settings, created at first use, closed when the thread ends.

    Two ranges of one partition cannot be read at once through one client. `topic`: the name and the id of the
    one to be read. A client that has read another one of that name is replaced: it takes the new one's leader
    epochs, which begin at 0 again, for outdated ones and gets no records.
    """
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageProblem(f"isolation is read_committed or read_uncommitted, not {isolation!r}.")
    key = (isolation, *sorted(config.items()))
    if _clients.process != os.getpid():
        _clients.__init__()  # type: ignore[misc]
    read = _clients.read.setdefault(key, {})
    if topic and read.setdefault(*topic) != topic[1]:
        if key in _clients.readers:
            _clients.readers.pop(key).close()
        read.clear()
        read.setdefault(*topic)
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
    """How many bytes the new records of some partitions have, before compression; None: more than `most`, of
    which no more than that is read. Raises what Reader.blocks does."""
    if sum(p.end_position - p.start_position for p in positions) * BYTES_A_HASH > most:
        return None
    found = 0
    for p in positions:
        source = reader(config, isolation_of(p.scope, isolation), (p.scope, p.epoch))
        blocks = source.blocks(p.scope, int(p.region), p.start_position, p.end_position)
        with closing(blocks):
            for block in blocks:
                found += len(block.data)
                if found > most:
                    return None
    return found


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
) -> Iterator[FileStats]:
    """Copy the records with offsets in [start, end) into Avro files of about `target_bytes`, one by one; with
    `roll_ms`, also closed by time (see Roll).

    `new_file` is asked for a sink when a file's first block is ready; when its figures are yielded, every
    byte is in the sink, which the caller then commits before going on. No record, no file.
    `on_progress(records, raw bytes)` is called per batch. `config`: librdkafka properties. `look` is called
    with each block in order, beside reading, see Look. Raises what Reader.blocks does, and what it does.
    """
    compress = compressor(codec, compression_level)
    source = reader(config, isolation, (topic, topic_id) if topic_id else None)

    def prepare(block: Block) -> tuple[Block, bytes] | None:
        seen = block if look is None else look(block)
        return None if seen is None else (seen, compress(seen.data))

    file: FileWriter | None = None
    opens = False
    # Compression runs beside reading, hashing and writing; at most two blocks are on their way.
    with (
        closing(
            source.blocks(
                topic, partition, start, end, patience=patience, on_progress=on_progress, roll_ms=roll_ms
            )
        ) as blocks,
        ThreadPoolExecutor(1, "compress") as worker,
    ):
        ahead: deque[tuple[Block, Future[tuple[Block, bytes] | None]]] = deque()
        more = True
        while more or ahead:
            block = next(blocks, None) if more else None
            more = block is not None
            if block is not None:
                ahead.append((block, worker.submit(prepare, block)))
            while ahead and (not more or len(ahead) > 2):
                read, made = ahead.popleft()
                opens |= read.opens
                ready = made.result()
                if ready is None:
                    continue
                if file is not None and opens:
                    finished, file = file.finish(), None
                    yield finished
                if file is None:
                    sink = new_file()
                    file = FileWriter(sink, codec=codec, level=compression_level, metadata=metadata)
                file.write_compressed(*ready)
                opens = False
                if file.bytes >= target_bytes:
                    finished, file = file.finish(), None
                    yield finished
    if file is not None:
        yield file.finish()
