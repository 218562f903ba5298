"""An engine's queues and store for benchmarks, and writers at full speed.

`python -m tests.benchmarks.queue_load BOOTSTRAP NAME NUMBER` is a writer. It ends on SIGTERM, and prints the
number of its messages that were acknowledged in each tick.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.benchmarks.data import DataSet, produce_records, records
from tests.support.kafka_truth import until

#: Partitions of the delta queue and of the journal queue.
DELTA, JOURNAL = 4, 2
PIECE_MB = 64
SCHEMA = "schemas:\n- {version: 1, tid: 0, change: created, schema: [name, age]}\n"
#: Messages of a transaction, begin and commit included. Every second run of so many messages is outside one.
TRANSACTION = 20
#: Seconds of a tick, for which a writer counts acknowledgements, and of the shortest pause that it records.
TICK_S = 0.05
_PAUSE_S = 0.005

Header = list[tuple[str, bytes]]
Partition = tuple[str, int]
Ranges = dict[Partition, tuple[int, int]]


@dataclass(frozen=True)
class Queues:
    """The two topics of an engine: the delta queue and the journal queue."""

    bootstrap: str
    name: str

    @property
    def topics(self) -> dict[str, int]:
        return {f"{self.name}.delta": DELTA, f"{self.name}.journal": JOURNAL}

    @property
    def partitions(self) -> list[Partition]:
        return [(topic, p) for topic, partitions in self.topics.items() for p in range(partitions)]

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        settings = {"retention.ms": "-1", "file.delete.delay.ms": "1000"}
        new_topics = [NewTopic(topic, count, 1, config=settings) for topic, count in self.topics.items()]
        for future in admin.create_topics(new_topics).values():
            future.result(30)
        until(self._has_leaders, f"{', '.join(self.topics)} have leaders")

    def _has_leaders(self) -> bool:
        try:
            return not any(self.ends().values())
        except KafkaException:
            return False

    def delete(self) -> None:
        """Delete the topics to free the broker's disk."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_topics(list(self.topics), operation_timeout=30).values():
            future.result(60)

    def ends(self) -> dict[Partition, int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        requests = {TopicPartition(*partition): OffsetSpec.latest() for partition in self.partitions}
        futures = admin.list_offsets(requests)
        return {
            (partition.topic, partition.partition): future.result(30).offset
            for partition, future in futures.items()
        }

    def change(self, bytes_: int) -> tuple[int, int]:
        """Write about `bytes_` bytes. Returns the number of messages and of bytes (keys, values, headers)."""
        errors: list[KafkaError] = []
        producer = _producer(self.bootstrap)
        count = size = 0
        for partition, key, value, headers in messages(self.partitions, time.time_ns()):
            _produce(producer, partition, key, value, headers, errors)
            count += 1
            size += (
                len(key) + len(value) + sum(len(name) + len(header_value) for name, header_value in headers)
            )
            # Ends only where a transaction ends.
            if size >= bytes_ and count % TRANSACTION == 0:
                break
        assert producer.flush(300) == 0
        assert not errors, errors[0]
        return count, size


def messages(partitions: list[Partition], tid: int) -> Iterator[tuple[Partition, bytes, bytes, Header]]:
    """Yield rows of 200 bytes without end, half of them in transactions. Tids rise by one from `tid` + 1."""
    rows = records(DataSet("queue", 0, 200), seed=tid % 1000)
    number = 0
    while True:
        partition, transaction = partitions[number % len(partitions)], b"tx-%d" % tid if number % 2 else None
        for index, (key, value) in enumerate(islice(rows, TRANSACTION)):
            tid += 1
            headers = [("tid", b"%d" % tid)]
            if transaction:
                kind = {0: b"begin", TRANSACTION - 1: b"commit"}.get(index, b"write")
                headers += [("transaction", transaction), ("kind", kind)]
            yield partition, key, value, headers
        number += 1


@dataclass(frozen=True)
class Store:
    """The files of an engine: `<folder>/snapshot`, its configuration and its schema history."""

    folder: Path

    def make(self, bytes_: int) -> int:
        """Write files of 64 MB, with a smaller one at the end. Returns the number of files."""
        rng = random.Random(7)
        self.snapshot.mkdir(parents=True, exist_ok=True)
        sizes = [PIECE_MB * 10**6] * (bytes_ // (PIECE_MB * 10**6))
        sizes += [remainder] if (remainder := bytes_ - sum(sizes)) else []
        for number, size in enumerate(sizes):
            (self.snapshot / f"segment-{number:04d}.sst").write_bytes(rng.randbytes(size))
        self.config.write_text("engine: graph\n", "utf-8")
        self.schema.write_text(SCHEMA, "utf-8")
        return len(sizes)

    def write_snapshot_json(self, queues: Queues) -> None:
        """Write snapshot.json, which says that the files contain everything in the queues."""
        ends, tid = queues.ends(), time.time_ns()
        positions = [
            {"topic": topic, "partition": partition, "position": end, "max_no_transaction_pos": end}
            for (topic, partition), end in ends.items()
        ]
        state = {"format": 1, "last_tid": tid, "queues": positions, "open_transactions": []}
        (self.folder / "snapshot.json").write_text(json.dumps(state), "utf-8")

    def renew(self) -> None:
        """Touch the files, as if the engine had written them again."""
        for file in self.snapshot.iterdir():
            file.touch()

    def delete(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshot"

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def schema(self) -> Path:
        return self.folder / "delta_schema_history.yaml"


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 50_000,
        }
    )


def _produce(
    producer: Producer, address: Partition, key: bytes, value: bytes, headers: Any, errors: list[KafkaError]
) -> None:
    def note_error(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    topic, partition = address
    produce_records(producer, topic, value, key, partition, headers=headers, on_delivery=note_error)


def write(bootstrap: str, name: str, number: int) -> dict[str, Any]:
    """Write at full speed until SIGTERM. Returns acknowledgements by tick, and the start and end of pauses.

    Times are seconds of the monotonic clock, which is the same for all processes.
    """
    over = False

    def stop(*_: object) -> None:
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, stop)
    ticks: Counter[int] = Counter()
    pauses: list[tuple[float, float]] = []
    previous = time.monotonic()

    def note_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal previous
        assert error is None, error
        delivered = time.monotonic()
        if delivered - previous > _PAUSE_S:
            pauses.append((previous, delivered))
        previous = delivered
        ticks[int(delivered / TICK_S)] += 1

    producer = _producer(bootstrap)
    # Each writer begins at another partition. The messages are prepared once, to save time while writing.
    partitions = Queues(bootstrap, name).partitions
    prepared = list(
        islice(messages(partitions[number:] + partitions[:number], 0), TRANSACTION * len(partitions) * 20)
    )
    print("ready", flush=True)
    parent = os.getppid()
    while not over and os.getppid() == parent:
        tid = time.time_ns()
        for count, ((topic, partition), key, value, headers) in enumerate(prepared):
            new_headers = [("tid", b"%d" % (tid + count))]
            if len(headers) > 1:
                new_headers += [
                    ("transaction", b"%d-%d-%d" % (number, tid, count // TRANSACTION)),
                    headers[2],
                ]
            produce_records(
                producer, topic, value, key, partition, headers=new_headers, on_delivery=note_delivery
            )
            if count % 100 == 0:
                producer.poll(0)
    producer.flush(60)
    return {"ticks": sorted(ticks.items()), "pauses": pauses}


if __name__ == "__main__":
    print(json.dumps(write(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
