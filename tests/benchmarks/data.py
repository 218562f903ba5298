"""The records for every tool: order events as JSON text with unique ids, seeded, so the same in each run.

zstd level 1 compresses them to about a fifth: field names and a few hundred products, cities and states
repeat, while ids, amounts, times and trace ids do not. Keys name one of a million customers. There are no
headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PARTITIONS = 4
FIRST_TS = 1_735_689_600_000
_CHUNK = 10_000
_NUMBERS = count(1)
_STATES = [b"created", b"paid", b"packed", b"shipped", b"delivered", b"returned"]
_CITIES = [b"Oslo", b"Bern", b"Lisbon", b"Nairobi", b"Osaka", b"Quito", b"Tallinn", b"Utrecht", b"Winnipeg"]
_WORDS = b" leave at the door, ring twice, fragile, gift, call before noon, weekday only, second floor "
_EVENT = (
    b'{"id":%d,"customer":"c-%06d","product":"p-%03d","quantity":%d,"amount":%d.%02d,'
    b'"state":"%b","city":"%b","at":%d,"trace":"%014x","note":"'
)


@dataclass(frozen=True)
class DataSet:
    """A topic of `records` records with values of `value_bytes` bytes, spread evenly over the partitions."""

    name: str
    records: int
    value_bytes: int
    compression: str = "none"

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    def __str__(self) -> str:
        return f"{self.records:,} records of {self.value_bytes:,} bytes"


def _events(seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield pairs of a key and a value of 200 bytes, without end."""
    random, number = np.random.default_rng(seed), 0
    while True:
        draw = random.integers(0, 1 << 56, (6, _CHUNK)).tolist()
        for customer, product, amount, pick, trace, slice_ in zip(*draw, strict=True):
            customer %= 1_000_000
            head = _EVENT % (
                number, customer, product % 400, 1 + pick % 5, amount % 500, amount % 97,
                _STATES[pick % 6], _CITIES[pick % 9], FIRST_TS + number, trace,
            )  # fmt: skip
            start, note_bytes = slice_ % 40, 198 - len(head)
            yield b"c-%06d" % customer, head + _WORDS[start : start + note_bytes].ljust(note_bytes) + b'"}'
            number += 1


def records(data: DataSet, seed: int = 7) -> Iterator[tuple[bytes, bytes]]:
    """Return endless pairs of key and value. Values over 200 bytes are several events in a row."""
    events = _events(seed)
    if data.value_bytes <= 200:
        return ((key, value[: data.value_bytes]) for key, value in events)
    events_per_value = -(-data.value_bytes // 200)

    def joined() -> Iterator[tuple[bytes, bytes]]:
        while True:
            group = list(islice(events, events_per_value))
            yield group[0][0], b"".join(value for _, value in group)[: data.value_bytes]

    return joined()


def produce_records(producer: Producer, *record: Any, **options: Any) -> None:
    """Produce a record, and wait while the producer's queue is full."""
    while True:
        try:
            return producer.produce(*record, **options)
        except BufferError:
            producer.poll(0.05)


def fill(bootstrap: str, data: DataSet, already: int = 0) -> None:
    """Create the topic and write its records. With `already` records in it, write only the others."""
    if not already:
        create_topic(bootstrap, data.topic)
    errors: list[KafkaError] = []

    def note_error(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": data.compression,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 400_000,
            "delivery.report.only.error": True,
        }
    )
    new_records = islice(records(data, 7 + already), data.records - already)
    for number, (key, value) in enumerate(new_records, already):
        options = {"partition": number % PARTITIONS, "timestamp": FIRST_TS + number}
        produce_records(producer, data.topic, value, key, **options, on_delivery=note_error)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    assert not errors, errors[0]


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    """Create a topic that keeps records with old timestamps."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"retention.ms": "-1", "file.delete.delay.ms": "1000"}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic to free the broker's disk. A missing topic is no error."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.delete_topics([name], operation_timeout=30)[name].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


@contextmanager
def new_name(bootstrap: str, data: DataSet) -> Iterator[str]:
    """Yield an unused topic name for a restore, and delete that topic afterwards."""
    name = f"{data.topic}-restored-{next(_NUMBERS)}"
    try:
        yield name
    finally:
        delete_topic(bootstrap, name)


def offsets(bootstrap: str, name: str) -> int:
    """Return the sum of the partitions' end offsets: records, and a marker per transaction and partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    requests = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    return sum(future.result(30).offset for future in admin.list_offsets(requests).values())
