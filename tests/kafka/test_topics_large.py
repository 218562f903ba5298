"""Two million records of every kind there and back, and how little the driver needs for it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import fastavro
import psutil
import pytest
from confluent_kafka import Producer
from tests.support import kafka_truth as truth
from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

PARTITIONS = 4
HALF = 1_000_000
ABORTED = 20_000
LARGE = 10  # of 1 MB, in each half
START_MS = 1_600_000_000_000
MOST_GROWTH = 150 << 20

Make = Callable[..., str]


def fill(bootstrap: str, topic: str) -> None:
    """Half of the records, an aborted transaction, the other half. Runs in a process of its own."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 50,
        "batch.size": 1_000_000,
        "message.max.bytes": 2_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1 << 18,
        "compression.type": "lz4",
    }
    producer = Producer(config)
    send(producer, topic, HALF)
    aborting = Producer(config | {"transactional.id": f"abort-{topic}"})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    send(aborting, topic, ABORTED, large=0)
    aborting.abort_transaction(60)
    send(producer, topic, HALF)


def send(producer: Producer, topic: str, count: int, large: int = LARGE) -> None:
    """`count` records in turn over the partitions: every combination of kinds, times that run backwards."""
    kinds: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (key, value, headers)
        for key in (None, b"", *(b"key-%d" % i for i in range(9)))
        for value in (None, b"", *(b"value %d " % i * (3 * i) for i in range(1, 9)))
        for headers in ([], [("trace", b"abc"), ("trace", None), ("", b"")], [("one", b"1")])
        if value is not None or key is not None
    ]
    produce = producer.produce
    for i in range(count):
        key, value, headers = kinds[i % len(kinds)]
        if large and i % (count // large) == 0:
            value = b"%07d" % i * 140_000
        # 1009 out of step with the partitions, so that each of them gets every kind and every time.
        arguments: dict[str, Any] = {"timestamp": START_MS + (i * 7919) % 1_000_003, "headers": headers}
        while True:
            try:
                produce(topic, value, key, (i + i // 1009) % PARTITIONS, **arguments)
                break
            except BufferError:
                producer.poll(0.05)
        if i % 50_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


@contextmanager
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """A process for what needs memory in proportion to the records, which is not what is measured."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@contextmanager
def growth() -> Iterator[list[int]]:
    """How much this process grew at the worst moment of the block, in bytes."""
    process = psutil.Process()
    before = process.memory_info().rss
    found = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            found[0] = max(found[0], process.memory_info().rss - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        done.set()
        watching.join()


def test_two_million_records_come_back_and_the_driver_stays_small(lab: Lab, topic: Make) -> None:
    small, copy = topic("small"), topic("small-copy")
    truth.produce(lab.bootstrap, small, [truth.Record(0, b"k", b"v", (), START_MS)])
    name = topic("large", partitions=PARTITIONS, **{"max.message.bytes": "2000000"})
    with elsewhere() as pool:
        pool.submit(fill, lab.bootstrap, name).result(300)
        before = pool.submit(truth.fingerprint, lab.bootstrap, name).result(300)
        assert sum(count for count, _ in before.values()) == 2 * HALF

        # What is imported and cached once belongs to no record.
        lab.backup(small)
        lab.restore(small, maps={small: copy})
        with growth() as grown:
            done = lab.backup(name)
            truth.delete_topic(lab.bootstrap, name)
            restored = lab.restore(name)
        assert (done["entries"], restored["entries"]) == (2 * HALF, 2 * HALF)
        assert pool.submit(truth.fingerprint, lab.bootstrap, name).result(300) == before
    assert grown[0] < MOST_GROWTH, f"the driver grew by {grown[0] >> 20} MiB"
    print(f"backup {done['seconds']} s, restore {restored['seconds']} s, driver +{grown[0] >> 20} MiB")

    folders = sorted(lab.folder.glob(f"lab/*/topics/{name}/partition=*"))
    assert [folder.name for folder in folders] == [f"partition={p}" for p in range(PARTITIONS)]
    offset, count = -1, 0
    for file in sorted(folders[2].iterdir()):
        with file.open("rb") as stream:
            for record in fastavro.reader(stream):
                assert isinstance(record, dict)
                assert record["partition"] == 2
                assert record["offset"] > offset
                offset, count = record["offset"], count + 1
    assert count == before[2][0]
