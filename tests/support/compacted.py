"""Topics whose log the broker compacts while a test looks on, and what is the latest of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import now_ms

Latest = dict[tuple[int, bytes], bytes]

# The active segment is never cleaned, so segments are short in time; the cleaner takes what it finds.
CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
}
FILLER = b"filler"


def put(bootstrap: str, topic: str, pairs: Iterable[tuple[int, bytes, bytes | None]]) -> None:
    """Write (partition, key, value) with the present time."""
    truth.produce(bootstrap, topic, [Record(p, key, value, (), now_ms()) for p, key, value in pairs])


def latest(records: Iterable[Record]) -> Latest:
    """The last value of each key, tombstones taken into account."""
    found: Latest = {}
    for r in records:
        assert r.key is not None
        if r.value is None:
            found.pop((r.partition, r.key), None)
        else:
            found[r.partition, r.key] = r.value
    return found


def clean(bootstrap: str, topic: str, partitions: int, gone: Callable[[Record], bool] | None = None) -> None:
    """Wait until the broker has dropped all that is replaced now, and all records that are `gone`.

    Writes records with the key FILLER, since only appending ends a segment.
    """
    ends = dict.fromkeys(range(partitions), 0)
    for offset, record in truth.read(bootstrap, topic):
        ends[record.partition] = max(ends[record.partition], offset + 1)

    def cleaned() -> bool:
        put(bootstrap, topic, [(p, FILLER, b"%d" % now_ms()) for p in range(partitions)])
        seen: set[tuple[int, bytes | None]] = set()
        for offset, r in truth.read(bootstrap, topic):
            if gone is not None and gone(r):
                return False
            if offset < ends[r.partition]:
                if (r.partition, r.key) in seen:
                    return False
                seen.add((r.partition, r.key))
        return True

    truth.until(cleaned, f"{topic} is compacted")


def stored(folder: Path) -> Iterator[Record]:
    """Records that a restore into a folder left of one topic, by fastavro alone."""
    return (record for _, record in truth.records_below(folder))
