"""The same reading and writing through confluent-kafka's ordinary client, one Python object per message.

Used where librdkafka's own functions cannot be (a confluent-kafka built against the system's library), or
when asked for. Several times slower, the same records.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from lakebackup.errors import UsageProblem
from lakebackup_jobs.kafka.admin.problems import (
    CONSEQUENCES,
    PARTITION_EOF,
    PASSING,
    fatal_event,
    problem,
    stalled,
    unknown,
)
from lakebackup_jobs.kafka.client.blocks import BLOCK_BYTES, Roll
from lakebackup_jobs.kafka.client.settings import PATIENCE, READING, READING_TUNING, WRITING, writing_tuning
from lakebackup_jobs.kafka.format.key_filter import hashes_of
from lakebackup_jobs.kafka.format.records import (
    HEADER_COUNT,
    KEY,
    KEY_KEPT,
    KEY_LENGTH,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
    Block,
    Columns,
    decode_block,
    record_prefix,
)
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.kafka.format.stats import BlockStats

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from lakebackup_jobs.kafka.admin.committed import Place, Progress

Headers = list[tuple[str, bytes | None]]
_TIMED_OUT = -185


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return b"\0" if data is None else b"\2" + _long(len(data)) + data


def encode_record(
    prefix: bytes, offset: int, ts: int, kind: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record in version 2; `prefix` as record_prefix gives it, `kind` the place in TIMESTAMP_TYPES."""
    pairs = b"".join(
        _long(len(name.encode())) + name.encode() + _nullable(content) for name, content in headers
    )
    listed = _long(len(headers)) + pairs if headers else b""
    return b"".join(
        (prefix, _long(offset), _long(ts), _long(kind), _nullable(key), _nullable(value), listed, b"\0")
    )


def stats_of(offset: int, ts: int, key: bytes | None, value: bytes | None) -> BlockStats:
    """The figures of one record."""
    kept = None if key is None else key[:KEY_KEPT]
    return BlockStats(1, ts, ts, offset, offset, int(key is None), int(value is None), kept, kept)


def _block(data: bytearray, stats: BlockStats, roll: Roll) -> Block:
    columns = decode_block(bytes(data), stats.entries, FORMAT_V2)
    return Block(columns.data, stats, roll.take(), hashes_of(columns))


def _client(kind: Callable[[dict[str, Any]], Any], settings: dict[str, Any]) -> Any:
    try:
        return kind(settings)
    except KafkaException as error:
        # The text names the property; librdkafka does not put values of secret ones into it.
        raise UsageProblem(
            f"The Kafka client could not be set up: {error.args[0].str()}.",
            hint="Correct the setting that it names, in the file of --kafka-config.",
        ) from None


class PlainReader:
    """See consume.Reader. A range has its own client."""

    def __init__(self, config: Mapping[str, str], isolation: str) -> None:
        fixed = {**READING, "isolation.level": isolation, "group.id": "lakebackup-reader", "log_level": "2"}
        self._config = {**READING_TUNING, **config, **fixed}

    def close(self) -> None:
        """Nothing is kept between ranges."""

    def blocks(  # noqa: C901 (one loop over what a batch may bring)
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        patience: float = PATIENCE,
        on_progress: Callable[[int, int], None] | None = None,
        block_bytes: int = BLOCK_BYTES,
        roll_ms: int | None = None,
    ) -> Generator[Block, None, None]:
        """See consume.Reader."""
        roll = Roll(roll_ms)
        words: list[tuple[int, str]] = []
        client = _client(
            Consumer, {**self._config, "error_cb": lambda error: words.append((error.code(), error.str()))}
        )
        place = TopicPartition(topic, partition, start)
        prefix = record_prefix(topic, partition)
        data, stats = bytearray(), None
        following, seen, moved = start, start, time.monotonic()
        try:
            client.assign([place])
            while True:
                messages: list[Message] = client.consume(1000, 0.1)
                before = (following, len(data))
                taken = count = 0
                for message in messages:
                    error = message.error()
                    offset = message.offset()
                    if error is not None and error.code() != PARTITION_EOF:
                        words.append((error.code(), error.str()))
                        if error.code() not in PASSING:
                            raise unknown(
                                self._config, *words[-1], f"{topic}[{partition}] at offset {following}"
                            )
                        continue
                    if offset is not None and offset >= end:
                        following = end
                        break
                    if error is not None or offset is None or offset < following:
                        continue
                    kind, ts = message.timestamp()
                    ts = ts if kind else -1
                    key, value = message.key(), message.value()
                    encoded = encode_record(
                        prefix, offset, ts, kind, key, value, cast("Headers", message.headers() or [])
                    )
                    one = stats_of(offset, ts, key, value)
                    young = ts > roll.youngest
                    if stats is not None and (young or len(data) + len(encoded) > block_bytes):
                        yield _block(data, stats, roll)
                        data, stats = bytearray(), None
                    if young:
                        roll.over(ts)
                    data += encoded
                    stats = one if stats is None else stats + one
                    taken += len(encoded)
                    count += 1
                    following = offset + 1
                if taken and on_progress is not None:
                    on_progress(count, taken)
                position = client.position([place])[0].offset
                if following >= end or position >= end:
                    break
                if (following, len(data)) != before or position > seen:
                    seen, moved = max(seen, position), time.monotonic()
                where = f"{topic}[{partition}] at offset {following}"
                for code, text in words:
                    if fatal_event(code):
                        raise problem(code, text, where)
                if time.monotonic() - moved > patience:
                    raise stalled(patience, words[-1] if words else None, where)
                del words[:-1]
            if stats is not None:
                yield _block(data, stats, roll)
        finally:
            client.close()


class PlainEngine:
    """See produce.Engine."""

    def __init__(self, config: Mapping[str, str], transactional_id: str, patience: float) -> None:
        settings = {**writing_tuning(patience), **config, **WRITING, "transactional.id": transactional_id}
        self._config, self._patience = config, patience
        self._where = f"restore {transactional_id}"
        self._failed: tuple[int, str] | None = None
        self._client = _client(
            Producer,
            {
                **settings,
                "on_delivery": self._delivered,
                "delivery.report.only.error": True,
                "log_level": "2",
            },
        )
        self._do(self._client.init_transactions, patience)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None and self._failed is None and error.code() not in CONSEQUENCES:
            self._failed = (error.code(), error.str())

    def _do(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except KafkaException as error:
            code, text = self._failed or (error.args[0].code(), error.args[0].str())
            raise problem(code, text, self._where) from None

    def begin(self) -> None:
        self._failed = None
        self._do(self._client.begin_transaction)

    def send(self, topic: str, partition: int, columns: Columns) -> None:
        data = columns.data.tobytes()
        headers = columns.headers().tolist()
        used = 0
        moved = time.monotonic()
        for row in columns.rows.tolist():
            pairs = [
                (
                    data[k : k + size].decode(errors="surrogateescape"),
                    None if length < 0 else data[v : v + length],
                )
                for k, size, v, length in headers[used : used + row[HEADER_COUNT]]
            ]
            used += row[HEADER_COUNT]
            extra = {} if row[TIMESTAMP] == -1 else {"timestamp": row[TIMESTAMP] or 1}
            key, value = (
                None if row[size] < 0 else data[row[at] : row[at] + row[size]]
                for at, size in ((KEY, KEY_LENGTH), (VALUE, VALUE_LENGTH))
            )
            produce = partial(self._client.produce, topic, value, key, partition, headers=pairs, **extra)
            while True:
                try:
                    self._do(produce)
                    moved = time.monotonic()
                    break
                except BufferError:
                    self._client.poll(0.05)
                    if time.monotonic() - moved > self._patience:
                        raise stalled(self._patience, self._failed, f"{topic}[{partition}]") from None

    def flush(self) -> None:
        left = self._client.flush(self._patience)
        if left or self._failed:
            raise problem(*(self._failed or (_TIMED_OUT, "records were not taken in time")), self._where)

    def commit(self, group: str, progress: Mapping[Place, Progress]) -> None:
        positions = [
            TopicPartition(topic, partition, entry.position, entry.note)
            for (topic, partition), entry in progress.items()
        ]
        if positions:
            reader = _client(Consumer, {**self._config, "group.id": group, "log_level": "3"})
            try:
                whose = reader.consumer_group_metadata()
                self._do(self._client.send_offsets_to_transaction, positions, whose, self._patience)
            finally:
                reader.close()
        self._do(self._client.commit_transaction, self._patience)

    def abort(self) -> None:
        self._do(self._client.abort_transaction, self._patience)

    def close(self) -> None:
        # Its callback and this object hold each other; without this the client would go on for ever.
        self._client = None
