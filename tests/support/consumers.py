"""Consumer groups as applications have them: they commit, read on, and return what they read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

TopicPartitionKey = tuple[str, int]


def commit(
    bootstrap: str,
    group: str,
    offsets: Mapping[TopicPartitionKey, int],
    metadata: str | None = None,
    **config: str,
) -> None:
    """Commit these offsets for a group without members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **config})
    try:
        topic_partitions = [TopicPartition(t, p, o, metadata or "") for (t, p), o in offsets.items()]
        for topic_partition in consumer.commit(offsets=topic_partitions, asynchronous=False) or ():
            assert topic_partition.error is None, topic_partition.error
    finally:
        consumer.close()


def committed(bootstrap: str, group: str) -> dict[TopicPartitionKey, tuple[int, str | None]]:
    """Offset and metadata of every partition for which a group has committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    topic_partitions = futures[group].result(30).topic_partitions
    return {(p.topic, p.partition): (p.offset, p.metadata or None) for p in topic_partitions if p.offset >= 0}


def read_on(
    bootstrap: str, group: str, topic: str, count: int, *, metadata: str | None = None, **config: str
) -> list[tuple[int, bytes | None]]:
    """Subscribe, read `count` records of committed transactions and commit: (partition, value) in order.

    Fails if the group has no committed offset or one outside the topic, unless `config` resets offsets. In
    that case it also commits the start of the partitions of which it has read nothing.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **config,
        }
    )
    records: list[tuple[int, bytes | None]] = []
    last: dict[int, int] = {}
    deadline = time.monotonic() + 60
    try:
        consumer.subscribe([topic])
        while len(records) < count:
            assert time.monotonic() < deadline, f"{group}: {len(records)} of {count} records came"
            for message in consumer.consume(count - len(records), 0.2):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                records.append((partition, message.value()))
                last[partition] = offset + 1
        if "auto.offset.reset" in config:
            last = {p.partition: 0 for p in consumer.assignment()} | last
        if last:
            topic_partitions = [TopicPartition(topic, p, o, metadata or "") for p, o in last.items()]
            consumer.commit(offsets=topic_partitions, asynchronous=False)
    finally:
        consumer.close()
    return records


@contextmanager
def member(bootstrap: str, group: str, topic: str, **config: str) -> Iterator[Consumer]:
    """A consumer that is a member of the group inside the block."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **config}
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline, f"{group} never got a partition"
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()
