"""An engine's queues and store for benchmarks, and writers at full speed.

`python -m tests.benchmarks.queue_load BOOTSTRAP NAME NUMBER` is a writer: it ends with SIGTERM, and prints
when how many of its messages were acknowledged.
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
from tests.benchmarks.data import DataSet, put, records
from tests.support.kafka_truth import until

#: Partitions of the delta queue and of the journal queue.
DELTA, JOURNAL = 4, 2
PIECE_MB = 64
SCHEMA = "schemas:\n- {version: 1, tid: 0, change: created, schema: [name, age]}\n"
#: A transaction has as many messages, begin and commit among them; every second run of so many has none.
TRANSACTION = 20
#: A writer's acknowledgements are counted for each so many seconds; of pauses, longer ones are put down.
TICK_S = 0.05
_PAUSE_S = 0.005

Header = list[tuple[str, bytes]]
Where = tuple[str, int]
Ranges = dict[Where, tuple[int, int]]


@dataclass(frozen=True)
class Queues:
    """Two topics of one engine, made when they are first written to."""

    bootstrap: str
    name: str

    @property
    def topics(self) -> dict[str, int]:
        return {f"{self.name}.delta": DELTA, f"{self.name}.journal": JOURNAL}

    @property
    def places(self) -> list[Where]:
        return [(topic, p) for topic, partitions in self.topics.items() for p in range(partitions)]

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        settings = {"retention.ms": "-1", "file.delete.delay.ms": "1000"}
        wanted = [NewTopic(topic, count, 1, config=settings) for topic, count in self.topics.items()]
        for made in admin.create_topics(wanted).values():
            made.result(30)
        until(self._there, f"{', '.join(self.topics)} have leaders")

    def _there(self) -> bool:
        try:
            return not any(self.ends().values())
        except KafkaException:
            return False

    def delete(self) -> None:
        """Gives the broker's disk back."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for gone in admin.delete_topics(list(self.topics), operation_timeout=30).values():
            gone.result(60)

    def ends(self) -> dict[Where, int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = {TopicPartition(*place): OffsetSpec.latest() for place in self.places}
        found = admin.list_offsets(wanted)
        return {(place.topic, place.partition): future.result(30).offset for place, future in found.items()}

    def change(self, bytes_: int) -> tuple[int, int]:
        """Write about so many bytes; returns how many messages and bytes (keys, values, headers) came in."""
        failed: list[KafkaError] = []
        producer = _producer(self.bootstrap)
        count = size = 0
        for place, key, value, headers in messages(self.places, time.time_ns()):
            _produce(producer, place, key, value, headers, failed)
            count += 1
            size += len(key) + len(value) + sum(len(name) + len(held) for name, held in headers)
            # A transaction is written to its end.
            if size >= bytes_ and count % TRANSACTION == 0:
                break
        assert producer.flush(300) == 0
        assert not failed, failed[0]
        return count, size


def messages(places: list[Where], tid: int) -> Iterator[tuple[Where, bytes, bytes, Header]]:
    """Endless: rows of 200 bytes, half of them in transactions; tids go up by one from `tid` + 1."""
    rows = records(DataSet("queue", 0, 200), seed=tid % 1000)
    number = 0
    while True:
        place, transaction = places[number % len(places)], b"tx-%d" % tid if number % 2 else None
        for part, (key, value) in enumerate(islice(rows, TRANSACTION)):
            tid += 1
            headers = [("tid", b"%d" % tid)]
            if transaction:
                kind = {0: b"begin", TRANSACTION - 1: b"commit"}.get(part, b"write")
                headers += [("transaction", transaction), ("kind", kind)]
            yield place, key, value, headers
        number += 1


@dataclass(frozen=True)
class Store:
    """An engine's files: `<folder>/snapshot` and what lies beside it."""

    folder: Path

    def make(self, bytes_: int) -> int:
        """Write files of 64 MB, the last one less; returns how many."""
        chance = random.Random(7)
        self.snapshot.mkdir(parents=True, exist_ok=True)
        sizes = [PIECE_MB * 10**6] * (bytes_ // (PIECE_MB * 10**6))
        sizes += [left] if (left := bytes_ - sum(sizes)) else []
        for number, size in enumerate(sizes):
            (self.snapshot / f"segment-{number:04d}.sst").write_bytes(chance.randbytes(size))
        self.config.write_text("engine: graph\n", "utf-8")
        self.schema.write_text(SCHEMA, "utf-8")
        return len(sizes)

    def stands(self, queues: Queues) -> None:
        """Say that everything in the queues is in the files, which are new ones from now on."""
        ends, now = queues.ends(), time.time_ns()
        told = [
            {"topic": topic, "partition": partition, "position": end, "max_no_transaction_pos": end}
            for (topic, partition), end in ends.items()
        ]
        said = {"format": 1, "last_tid": now, "queues": told, "open_transactions": []}
        (self.folder / "snapshot.json").write_text(json.dumps(said), "utf-8")

    def renew(self) -> None:
        """The files look as if the engine had written them again."""
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
    producer: Producer, place: Where, key: bytes, value: bytes, headers: Any, failed: list[KafkaError]
) -> None:
    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    topic, partition = place
    put(producer, topic, value, key, partition, headers=headers, on_delivery=told)


def write(bootstrap: str, name: str, number: int) -> dict[str, Any]:
    """Write as fast as it goes until SIGTERM. Returns acknowledgements by tick, and pauses from and to
    (seconds of the monotonic clock, which is the same for all processes)."""
    over = False

    def stop(*_: object) -> None:
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, stop)
    ticks: Counter[int] = Counter()
    pauses: list[tuple[float, float]] = []
    before = time.monotonic()

    def told(error: KafkaError | None, _: Message) -> None:
        nonlocal before
        assert error is None, error
        now = time.monotonic()
        if now - before > _PAUSE_S:
            pauses.append((before, now))
        before = now
        ticks[int(now / TICK_S)] += 1

    producer = _producer(bootstrap)
    # Each writer begins elsewhere; what is written again and again costs no time to make.
    places = Queues(bootstrap, name).places
    made = list(islice(messages(places[number:] + places[:number], 0), TRANSACTION * len(places) * 20))
    print("ready", flush=True)
    parent = os.getppid()
    while not over and os.getppid() == parent:
        tid = time.time_ns()
        for count, ((topic, partition), key, value, headers) in enumerate(made):
            more = [("tid", b"%d" % (tid + count))]
            if len(headers) > 1:
                more += [("transaction", b"%d-%d-%d" % (number, tid, count // TRANSACTION)), headers[2]]
            put(producer, topic, value, key, partition, headers=more, on_delivery=told)
            if count % 100 == 0:
                producer.poll(0)
    producer.flush(60)
    return {"ticks": sorted(ticks.items()), "pauses": pauses}


if __name__ == "__main__":
    print(json.dumps(write(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
