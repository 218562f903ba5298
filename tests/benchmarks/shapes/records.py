"""Topics whose records are small, large, compacted, with large headers, or without values."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from tests.benchmarks import data
from tests.benchmarks.data import FIRST_TS, DataSet
from tests.benchmarks.measure import progress
from tests.benchmarks.shapes.growing import Setting
from tests.benchmarks.shapes.topic import (
    BACKUP,
    NOTHING_NEW,
    TO_FOLDER,
    TOPIC,
    VERIFY,
    TopicOf,
)
from tests.support.kafka_truth import Record, digests, until

VERSIONS = 4  # of each key of a compacted topic
LARGE_BYTES = 8_000_000
_IN_PARTITION = 20  # records in each of many partitions
_QUIET_S = 10.0  # without a change of size, after which the broker has nothing more to compact


def _events(size: int, value_bytes: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield a number, a key and a value, `size` times."""
    pairs = data.records(DataSet("shape", size, value_bytes))
    return ((number, *pair) for number, pair in enumerate(islice(pairs, size)))


def _small(size: int) -> Iterator[Record]:
    for number, key, value in _events(size, 50):
        yield Record(0, key, value, (), FIRST_TS + number)


def _partitioned(size: int) -> Iterator[Record]:
    for number, key, value in _events(size * _IN_PARTITION, 200):
        yield Record(number % size, key, value, (), FIRST_TS + number)


def _compacted(keys: int) -> Iterator[Record]:
    for number, _, value in _events(keys * VERSIONS, 200):
        yield Record(0, b"key-%07d" % (number % keys), value, (), FIRST_TS + number)


def _large(size: int) -> Iterator[Record]:
    rng = random.Random(7)
    for number in range(size):
        yield Record(0, b"large-%d" % number, rng.randbytes(LARGE_BYTES), (), FIRST_TS + number)


def _with_headers(size: int) -> Iterator[Record]:
    rng = random.Random(7)
    text = rng.randbytes(1 << 19).hex().encode()
    for number, key, value in _events(size, 200):
        starts = (rng.randrange(len(text) - 1024) for _ in range(3))
        headers = tuple((f"header-{n}", text[start : start + 1024]) for n, start in enumerate(starts))
        yield Record(0, key, value, headers, FIRST_TS + number)


def _tombstones(size: int) -> Iterator[Record]:
    for number in range(size):
        yield Record(0, b"key-%09d" % number, None, (), FIRST_TS + number)


def _newest(records: Iterable[tuple[int, Record]]) -> dict[int, tuple[int, str]]:
    """Return digests of the newest record of each key. The broker compacts a copy differently."""
    newest = {record.key: (offset, record) for offset, record in records}
    return digests(newest[key] for key in sorted(newest, key=str))


def compacted_by(data_folder: Path) -> Callable[[Setting], None]:
    """Return what waits until the broker with this data has compacted the topic."""

    def stored() -> int:
        return sum(segment.stat().st_size for segment in (data_folder / f"{TOPIC}-0").glob("*.log"))

    def settle(_: Setting) -> None:
        written_bytes, last = stored(), (time.monotonic(), -1)

        def is_quiet() -> bool:
            nonlocal last
            now, now_bytes = time.monotonic(), stored()
            if now_bytes != last[1]:
                last = (now, now_bytes)
            return now - last[0] > _QUIET_S

        until(is_quiet, "the broker has compacted the topic")
        progress(f"the broker compacted {written_bytes / 1e6:.1f} MB to {stored() / 1e6:.1f} MB")

    return settle


PARTITIONS = TopicOf(
    _partitioned, partitions=lambda size: size, works=(BACKUP, NOTHING_NEW, VERIFY, TO_FOLDER)
)
SMALL = TopicOf(_small)
LARGE = TopicOf(_large, settings={"max.message.bytes": str(LARGE_BYTES + 10_000)})
HEADERS = TopicOf(_with_headers)
TOMBSTONES = TopicOf(_tombstones, settings={"cleanup.policy": "compact"})


def compacted(broker_data: Path) -> TopicOf:
    """Return a topic whose keys were written several times, and that the broker has compacted."""
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(1 << 20),
    }
    return TopicOf(_compacted, settings=settings, settle=compacted_by(broker_data), digests=_newest)
