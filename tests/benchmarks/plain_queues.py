"""What a backup of queues cannot do without: `python -m tests.benchmarks.plain_queues BOOTSTRAP FILE RANGES`.

A consumer writes the messages of the ranges (JSON: topic, partition, start, end) into one file, synced at the
end: lengths, key, value, headers, as they are. Prints its cost as JSON, without the start of Python.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from struct import pack
from typing import Any

from confluent_kafka import Consumer, TopicPartition

_NULL = pack("<i", -1)


def main(bootstrap: str, file: Path, ranges: Sequence[tuple[str, int, int, int]]) -> dict[str, Any]:
    """Cost, and how many messages were written."""
    used, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 0,
        }
    )
    left = {(topic, partition): end for topic, partition, start, end in ranges if start < end}
    consumer.assign([TopicPartition(topic, p, start) for topic, p, start, end in ranges if start < end])
    count = 0
    with file.open("wb") as out:
        while left:
            for message in consumer.consume(10_000, timeout=1.0):
                if error := message.error():
                    raise RuntimeError(str(error))
                place, offset = (message.topic(), message.partition()), message.offset()
                if offset >= left.get(place, 0):
                    continue
                parts = [pack("<iq", message.partition(), offset)]
                held = [message.key(), message.value()]
                for name, value in message.headers() or ():
                    held += [name.encode(), value]
                for part in held:
                    parts += [_NULL] if part is None else [pack("<i", len(part)), part]
                out.write(b"".join(parts))
                count += 1
                if offset + 1 >= left[place]:
                    del left[place]
                    # Writers go on: what comes now would be read in vain.
                    consumer.pause([TopicPartition(*place)])
        out.flush()
        os.fsync(out.fileno())
    seconds = time.perf_counter() - begun
    consumer.close()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_s": after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime,
        "peak_bytes": after.ru_maxrss * 1024,
        "messages": count,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))))
