"""From decoded blocks back into Kafka, in transactions that carry their own progress.

The progress of a restore is an offset commit of the restore's group on the target partition, made in the same
transaction as the records: its offset is the next source position. After a crash the next run fences the
old producer, reads the commit and goes on there, so that no record is lost or written twice.
"""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from lakebackup.errors import LakebackupError, Refused
from lakebackup_jobs.kafka import library
from lakebackup_jobs.kafka.problems import CONSEQUENCES, PASSING, Fenced, problem, stalled
from lakebackup_jobs.kafka.records import END, OFFSET, START, TIMESTAMP, Columns, within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from lakebackup_jobs.kafka.memory import Longs

PATIENCE = 60.0
_QUEUE_FULL = -184
# Load in progress, not available, not this broker's.
_COORDINATOR = frozenset({14, 15, 16})

#: What a user's own settings may change. A batch is bounded by bytes, below what topics allow by default,
#: so that many large records never make one too large; a single larger record still goes alone.
TUNING: Mapping[str, str] = {
    "linger.ms": "100",
    "compression.type": "lz4",
    "batch.size": "900000",
    "batch.num.messages": "1000000",
    "queue.buffering.max.messages": "0",
    "queue.buffering.max.kbytes": str(64 << 10),
    "message.max.bytes": "1000000000",
    "transaction.timeout.ms": "120000",
    "message.timeout.ms": "120000",
}
#: What makes the writing right.
FIXED: Mapping[str, str] = {
    "enable.idempotence": "true",
    "acks": "all",
    "delivery.report.only.error": "true",
    "allow.auto.create.topics": "false",
}


class Progress(NamedTuple):
    """Next source position of a partition, and a note of the caller's."""

    position: int
    note: str


@dataclass(frozen=True, slots=True)
class Sent:
    """Records given to one partition: their number, Avro bytes, first and last source offset."""

    entries: int
    bytes: int
    first_offset: int
    last_offset: int

    def __add__(self, later: Sent) -> Sent:
        return replace(
            self,
            entries=self.entries + later.entries,
            bytes=self.bytes + later.bytes,
            last_offset=later.last_offset,
        )


Place = tuple[str, int]


class Engine(Protocol):
    """A transactional client. Its methods raise LakebackupErrors."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, columns: Columns) -> None: ...

    def commit(self, group: str, progress: Mapping[Place, Progress]) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class NativeEngine:
    """Produces through librdkafka's own functions."""

    def __init__(self, config: Mapping[str, str], transactional_id: str, patience: float) -> None:
        self._library = library.load()
        self._patience = patience
        self._topics: dict[str, int] = {}
        self._failed: tuple[int, str] | None = None
        self._where = f"restore {transactional_id}"
        hard = {**FIXED, "transactional.id": transactional_id}
        self._handle = library.new_client(library.PRODUCER, {**TUNING, **config}, hard=hard)
        try:
            self._check(self._library.rd_kafka_init_transactions(self._handle, int(patience * 1000)))
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        self._failed = None
        self._check(self._library.rd_kafka_begin_transaction(self._handle))

    def send(self, topic: str, partition: int, columns: Columns) -> None:
        from lakebackup_jobs.kafka import native_write as n

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
            code, text, _ = library.take_error(error)
            self._listen(10 if code == _QUEUE_FULL else 0)
            if code != _QUEUE_FULL or self._failed:
                raise problem(*(self._failed or (code, text)), where)
            if place[0] != before:
                before, moved = int(place[0]), time.monotonic()
            elif time.monotonic() - moved > self._patience:
                raise stalled(self._patience, self._failed, where)

    def commit(self, group: str, progress: Mapping[Place, Progress]) -> None:
        rd = self._library
        milliseconds = int(self._patience * 1000)
        notes = [ctypes.create_string_buffer(entry.note.encode()) for entry in progress.values()]
        wanted = rd.rd_kafka_topic_partition_list_new(max(1, len(progress)))
        elements = []
        group_data = rd.rd_kafka_consumer_group_metadata_new(group.encode())
        try:
            for ((topic, partition), entry), note in zip(progress.items(), notes, strict=True):
                element = rd.rd_kafka_topic_partition_list_add(wanted, topic.encode(), partition).contents
                element.offset = entry.position
                element.metadata, element.metadata_size = ctypes.addressof(note), len(note.raw) - 1
                elements.append(element)
            if progress:
                self._check(
                    rd.rd_kafka_send_offsets_to_transaction(self._handle, wanted, group_data, milliseconds)
                )
        finally:
            rd.rd_kafka_consumer_group_metadata_destroy(group_data)
            for element in elements:
                element.metadata, element.metadata_size = None, 0  # our memory, not the list's
            rd.rd_kafka_topic_partition_list_destroy(wanted)
        self._check(self._aside(rd.rd_kafka_commit_transaction))

    def abort(self) -> None:
        self._failed = None
        self._check(self._aside(self._library.rd_kafka_abort_transaction))

    def close(self) -> None:
        for topic in self._topics.values():
            self._library.rd_kafka_topic_destroy(topic)
        self._topics.clear()
        if self._handle:
            library.drain_events(self._handle)
            self._library.rd_kafka_destroy(self._handle)
            self._handle = 0

    def _aside(self, action: Callable[[int, int], int | None]) -> int | None:
        """Commit or abort on another thread: both wait for reports of failed deliveries to be taken here."""
        with ThreadPoolExecutor(1, "transaction") as thread:
            ended = thread.submit(action, self._handle, int(self._patience * 1000))
            while not ended.done():
                self._listen(20)
        return ended.result()

    def _listen(self, wait_ms: int = 0) -> None:
        for code, text in library.drain_events(self._handle, wait_ms):
            # The first failed delivery says what is wrong; what follows it are consequences.
            if self._failed is None and code not in PASSING | CONSEQUENCES:
                self._failed = (code, text)

    def _check(self, error: int | None) -> None:
        self._listen()
        if error:
            code, text, _ = library.take_error(error)
            raise problem(*(self._failed or (code, text)), self._where)


class RestoreProducer:
    """A restore's producer: a context manager; leaving it with an open transaction aborts that.

    Making it fences every earlier producer with the same `transactional_id` and ends their open transactions.
    `group`: whose committed offsets are the progress. `config`: librdkafka properties.
    `patience`: seconds without progress before EnvironmentProblem. `zero_as_one`: librdkafka takes
    timestamp 0
    (the start of 1970) for "now"; such records are refused unless the caller agrees to 1 ms instead.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        transactional_id: str,
        group: str,
        *,
        patience: float = PATIENCE,
        zero_as_one: bool = False,
    ) -> None:
        self._config, self._group, self._patience = config, group, patience
        self._zero_as_one = zero_as_one
        self._open = False
        self.sent: dict[Place, Sent] = {}
        self._engine: Engine
        if library.available():
            self._engine = NativeEngine(config, transactional_id, patience)
        else:
            from lakebackup_jobs.kafka.plain import PlainEngine

            self._engine = PlainEngine(config, transactional_id, patience)

    def __enter__(self) -> RestoreProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._open:
                self.abort()
        except LakebackupError:
            # The coordinator aborts by itself when the transaction's time is up, or when the next
            # producer of this id begins; the error that brought us here matters more.
            if error is None:
                raise
        finally:
            self._engine.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._engine.begin()
        self._open = True
        self.sent = {}

    def produce_block(
        self,
        topic: str,
        partition: int,
        columns: Columns,
        from_ts: int | None = None,
        to_ts: int | None = None,
        min_offset: int = 0,
    ) -> Sent | None:
        """Produce the block's records with timestamp in (from_ts, to_ts] and source offset >= min_offset,
        in order.

        Key, value (null or not), headers in order and timestamp (left out when -1) are kept. Returns what
        was sent, None when nothing was chosen. Raises Refused for a timestamp that cannot be kept, Fenced,
        EnvironmentProblem.
        """
        columns = within(columns, from_ts, to_ts, min_offset)
        rows = columns.rows
        if not len(rows):
            return None
        zeros = rows[rows[:, TIMESTAMP] == 0, OFFSET]
        if len(zeros) and not self._zero_as_one:
            raise Refused(
                f"{topic}[{partition}]: the record of source offset {zeros[0]} has timestamp 0, "
                "which the Kafka client would replace by the present time.",
                hint="Allow such records to be written with timestamp 1 (ms) instead.",
            )
        self._engine.send(topic, partition, columns)
        size = int((rows[:, END] - rows[:, START]).sum())
        sent = Sent(len(rows), size, int(rows[0, OFFSET]), int(rows[-1, OFFSET]))
        place = (topic, partition)
        self.sent[place] = self.sent[place] + sent if place in self.sent else sent
        return sent

    def commit(self, progress: Mapping[Place, Progress]) -> dict[Place, Sent]:
        """Make the records visible together with `progress`; returns what was sent to each partition."""
        try:
            self._engine.commit(self._group, progress)
        except Fenced:
            self._open = False  # the transaction is the other's to end
            raise
        self._open = False
        return self.sent

    def abort(self) -> None:
        """Give up the open transaction: none of its records will be read by a committed reader."""
        self._open = False
        self._engine.abort()

    def committed(self, topic: str, partition: int) -> Progress | None:
        """What the last committed transaction said of this target partition; None when there was none."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        client = Consumer({**self._config, "group.id": self._group, "log_level": "3"})
        # A group that was just asked for the first time has a coordinator a moment later.
        waiting = Retrying(
            retry=retry_if_exception(
                lambda e: isinstance(e, KafkaException) and e.args[0].code() in _COORDINATOR
            ),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            stop=stop_after_delay(self._patience),
            reraise=True,
        )
        try:
            place = TopicPartition(topic, partition)
            found = waiting(client.committed, [place], timeout=self._patience)[0]
        except KafkaException as error:
            raise problem(error.args[0].code(), error.args[0].str(), f"{topic}[{partition}]") from None
        finally:
            client.close()
        if found.error is not None:
            raise problem(found.error.code(), found.error.str(), f"{topic}[{partition}]")
        return None if found.offset < 0 else Progress(found.offset, found.metadata or "")
