"""Topics that the broker compacts during a test, and the latest record of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import now_ms

Latest = dict[tuple[int, bytes], bytes]

# The broker never cleans the active segment, so segments are short; the cleaner runs on small amounts.
CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
}
FILLER = b"filler"


def produce_pairs(bootstrap: str, topic: str, pairs: Iterable[tuple[int, bytes, bytes | None]]) -> None:
    """Write (partition, key, value) with the current time."""
    truth.produce(bootstrap, topic, [Record(p, key, value, (), now_ms()) for p, key, value in pairs])


def latest(records: Iterable[Record]) -> Latest:
    """The last value of each key; a tombstone removes the key."""
    values_by_key: Latest = {}
    for r in records:
        assert r.key is not None
        if r.value is None:
            values_by_key.pop((r.partition, r.key), None)
        else:
            values_by_key[r.partition, r.key] = r.value
    return values_by_key


def clean(
    bootstrap: str, topic: str, partitions: int, is_cleaned: Callable[[Record], bool] | None = None
) -> None:
    """Wait until the broker has dropped all records that a later one replaces, and all that are `is_cleaned`.

    Writes records with the key FILLER, since only appending ends a segment.
    """
    ends = dict.fromkeys(range(partitions), 0)
    for offset, record in truth.read(bootstrap, topic):
        ends[record.partition] = max(ends[record.partition], offset + 1)

    def cleaned() -> bool:
        produce_pairs(bootstrap, topic, [(p, FILLER, b"%d" % now_ms()) for p in range(partitions)])
        keys: set[tuple[int, bytes | None]] = set()
        for offset, r in truth.read(bootstrap, topic):
            if is_cleaned is not None and is_cleaned(r):
                return False
            if offset < ends[r.partition]:
                if (r.partition, r.key) in keys:
                    return False
                keys.add((r.partition, r.key))
        return True

    truth.until(cleaned, f"{topic} is compacted")


def restored_records(folder: Path) -> Iterator[Record]:
    """The records of one topic that a restore wrote into a folder, read by fastavro."""
    return (record for _, record in truth.records_below(folder))
