"""Backs up and restores two million records of every kind, and limits the memory of the driver."""

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
HALF_COUNT = 1_000_000
ABORTED_COUNT = 20_000
LARGE_COUNT = 10  # of 1 MB, in each half
START_MS = 1_600_000_000_000
MAX_GROWTH_BYTES = 150 << 20

MakeTopic = Callable[..., str]


def fill(bootstrap: str, topic: str) -> None:
    """Send half of the records, an aborted transaction, and the other half. Runs in a process of its own."""
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
    send(producer, topic, HALF_COUNT)
    aborting_producer = Producer(config | {"transactional.id": f"abort-{topic}"})
    aborting_producer.init_transactions(30)
    aborting_producer.begin_transaction()
    send(aborting_producer, topic, ABORTED_COUNT, large=0)
    aborting_producer.abort_transaction(60)
    send(producer, topic, HALF_COUNT)


def send(producer: Producer, topic: str, count: int, large: int = LARGE_COUNT) -> None:
    """Send `count` records of every combination of kinds, in turn over the partitions, at unordered times."""
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
        # 1009 is out of step with the partitions, so each partition gets every kind and time.
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
def other_process() -> Iterator[ProcessPoolExecutor]:
    """A process for work that needs memory in proportion to the records. It is not measured."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@contextmanager
def growth() -> Iterator[list[int]]:
    """Yields a list with the largest growth of this process's memory within the block, in bytes."""
    process = psutil.Process()
    rss_before = process.memory_info().rss
    max_growth = [0]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            max_growth[0] = max(max_growth[0], process.memory_info().rss - rss_before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield max_growth
    finally:
        stop.set()
        watcher.join()


def test_two_million_records_are_restored_and_the_driver_stays_small(lab: Lab, topic: MakeTopic) -> None:
    small_topic, copy_topic = topic("small"), topic("small-copy")
    truth.produce(lab.bootstrap, small_topic, [truth.Record(0, b"k", b"v", (), START_MS)])
    name = topic("large", partitions=PARTITIONS, **{"max.message.bytes": "2000000"})
    with other_process() as pool:
        pool.submit(fill, lab.bootstrap, name).result(300)
        fingerprints = pool.submit(truth.fingerprint, lab.bootstrap, name).result(300)
        assert sum(count for count, _ in fingerprints.values()) == 2 * HALF_COUNT

        # The first runs import modules and fill caches, which is not measured.
        lab.backup(small_topic)
        lab.restore(small_topic, maps={small_topic: copy_topic})
        with growth() as grown:
            backup = lab.backup(name)
            truth.delete_topic(lab.bootstrap, name)
            restored = lab.restore(name)
        assert (backup["entries"], restored["entries"]) == (2 * HALF_COUNT, 2 * HALF_COUNT)
        assert pool.submit(truth.fingerprint, lab.bootstrap, name).result(300) == fingerprints
    assert grown[0] < MAX_GROWTH_BYTES, f"the driver grew by {grown[0] >> 20} MiB"
    print(f"backup {backup['seconds']} s, restore {restored['seconds']} s, driver +{grown[0] >> 20} MiB")

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
    assert count == fingerprints[2][0]
