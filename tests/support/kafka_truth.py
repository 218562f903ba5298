"""Reads and writes topics with confluent-kafka alone, to judge every round trip."""

from __future__ import annotations

import hashlib
import io
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType


@dataclass(frozen=True)
class Record:
    """One record as a consumer gets it, without its offset, so that records of two topics can be compared."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def records_in(file: Path | bytes) -> Iterator[tuple[int, Record]]:
    """Every `(offset, record)` of a data file, read by fastavro."""
    rows: Any = fastavro.reader(io.BytesIO(file if isinstance(file, bytes) else file.read_bytes()))
    for r in rows:
        headers = tuple((h["key"], h["value"]) for h in r["headers"])
        yield r["offset"], Record(r["partition"], r["key"], r["value"], headers, r["timestamp"])


def records_below(folder: Path) -> Iterator[tuple[int, Record]]:
    """Every `(offset, record)` of all data files below a folder, in the order of their paths."""
    for file in sorted(folder.rglob("*.data")):
        yield from records_in(file)


def create_topic(bootstrap: str, name: str, partitions: int = 1, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
    until(lambda: name in admin.list_topics(timeout=10).topics, f"topic {name} appears")


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name], operation_timeout=30)[name].result(30)
    until(lambda: name not in admin.list_topics(timeout=10).topics, f"topic {name} is gone")


def delete_records(bootstrap: str, name: str, offsets: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic_partitions = [TopicPartition(name, partition, offset) for partition, offset in offsets.items()]
    for future in admin.delete_records(topic_partitions).values():
        future.result(30)


def end_offset(bootstrap: str, topic: str) -> int:
    """The end offset of partition 0 of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "truth"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1])
    finally:
        consumer.close()


def settings(bootstrap: str, name: str) -> dict[str, str]:
    """The settings in force on a topic, with the broker's defaults."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, name)
    return {k: e.value for k, e in admin.describe_configs([resource])[resource].result(30).items()}


def until(holds: Callable[[], bool], description: str, seconds: float = 240.0) -> None:
    """Wait until a condition holds; after `seconds` raises AssertionError with `description`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s, but never: {description}")
        time.sleep(0.05)


def produce(
    bootstrap: str, topic: str, records: Iterable[Record], *, commit: bool = True, **config: Any
) -> None:
    """Write records to their partitions in order; fails if one is not acknowledged.

    With a `transactional.id`, they are one transaction, which is aborted unless `commit`.
    """
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.max.bytes": 10_000_000,
            "queue.buffering.max.messages": 500_000,
            **config,
        }
    )
    transactional = "transactional.id" in config
    if transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for r in records:
        arguments: dict[str, Any] = {"partition": r.partition, "headers": list(r.headers) or None}
        if r.timestamp >= 0:
            arguments["timestamp"] = r.timestamp
        while True:
            try:
                producer.produce(
                    topic,
                    r.value,
                    r.key,
                    on_delivery=lambda e, _: failed.append(e) if e else None,
                    **arguments,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if transactional:
        assert producer.flush(60) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    assert producer.flush(120) == 0
    assert not failed, failed[0]


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> Iterator[tuple[int, Record]]:
    """Every `(offset, record)` of a topic from its start to its present end; partitions are interleaved."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "truth",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 10_000_000,
        }
    )
    try:
        metadata = consumer.list_topics(topic, timeout=30).topics[topic]
        open_partitions = set(metadata.partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in open_partitions])
        deadline = time.monotonic() + 300
        while open_partitions:
            assert time.monotonic() < deadline, f"{topic}: partitions {open_partitions} never ended"
            for message in consumer.consume(10_000, timeout=0.1):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_partitions.discard(message.partition())
                    continue
                if message.partition() not in open_partitions:
                    continue
                kind, timestamp = message.timestamp()
                yield (
                    message.offset(),
                    Record(
                        message.partition(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        timestamp if kind else -1,
                    ),
                )
    finally:
        consumer.close()


def contents(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, list[Record]]:
    """The records of each partition, in order. For topics that fit in memory."""
    records_by_partition: dict[int, list[Record]] = {}
    for _, record in read(bootstrap, topic, isolation):
        records_by_partition.setdefault(record.partition, []).append(record)
    return records_by_partition


def fingerprint(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, tuple[int, str]]:
    """Record count and sha256 over all records in order, by partition. For large topics."""
    return digests(read(bootstrap, topic, isolation))


def digests(records: Iterable[tuple[int, Record]]) -> dict[int, tuple[int, str]]:
    """Record count and sha256 over records in order, by partition. The offsets are not part of it."""
    counts: dict[int, int] = {}
    hashes: dict[int, Any] = {}
    for _, r in records:
        digest = hashes.setdefault(r.partition, hashlib.sha256())
        counts[r.partition] = counts.get(r.partition, 0) + 1
        for part in (r.key, r.value, *(piece for key, value in r.headers for piece in (key.encode(), value))):
            digest.update(struct.pack("<q", -1 if part is None else len(part)))
            digest.update(part or b"")
        digest.update(struct.pack("<qq", r.timestamp, len(r.headers)))
    return {partition: (counts[partition], hashes[partition].hexdigest()) for partition in sorted(counts)}
