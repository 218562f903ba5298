"""Consumer groups as applications have them: they commit, read on, and say what they got."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

Place = tuple[str, int]


def commit(
    bootstrap: str, group: str, offsets: Mapping[Place, int], metadata: str | None = None, **config: str
) -> None:
    """Have a group without members stand at these offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **config})
    try:
        wanted = [TopicPartition(t, p, o, metadata or "") for (t, p), o in offsets.items()]
        for place in consumer.commit(offsets=wanted, asynchronous=False) or ():
            assert place.error is None, place.error
    finally:
        consumer.close()


def committed(bootstrap: str, group: str) -> dict[Place, tuple[int, str | None]]:
    """Offset and metadata of everything that a group has committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(30).topic_partitions
    return {(p.topic, p.partition): (p.offset, p.metadata or None) for p in found if p.offset >= 0}


def read_on(
    bootstrap: str, group: str, topic: str, count: int, *, metadata: str | None = None, **config: str
) -> list[tuple[int, bytes | None]]:
    """Subscribe, read `count` records of committed transactions and commit: (partition, value) in order.

    A group that stands nowhere, or outside the topic, fails: nothing is reset, unless `config` says so. Then
    it commits the start of the partitions it has read nothing of, too.
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
    found: list[tuple[int, bytes | None]] = []
    last: dict[int, int] = {}
    deadline = time.monotonic() + 60
    try:
        consumer.subscribe([topic])
        while len(found) < count:
            assert time.monotonic() < deadline, f"{group}: {len(found)} of {count} records came"
            for message in consumer.consume(count - len(found), 0.2):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                found.append((partition, message.value()))
                last[partition] = offset + 1
        if "auto.offset.reset" in config:
            last = {p.partition: 0 for p in consumer.assignment()} | last
        if last:
            wanted = [TopicPartition(topic, p, o, metadata or "") for p, o in last.items()]
            consumer.commit(offsets=wanted, asynchronous=False)
    finally:
        consumer.close()
    return found


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
