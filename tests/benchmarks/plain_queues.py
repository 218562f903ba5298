"""The least that a backup of queues must do: `python -m tests.benchmarks.plain_queues BOOTSTRAP FILE RANGES`.

A consumer writes the messages of the ranges (JSON: topic, partition, start, end) unchanged into one file:
lengths, key, value, headers. The file is synced at the end. Prints the cost as JSON, without Python's start.
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
    """Write the messages. Returns the cost, and the number of messages."""
    usage_before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 0,
        }
    )
    end_offsets = {(topic, partition): end for topic, partition, start, end in ranges if start < end}
    consumer.assign([TopicPartition(topic, p, start) for topic, p, start, end in ranges if start < end])
    count = 0
    with file.open("wb") as output:
        while end_offsets:
            for message in consumer.consume(10_000, timeout=1.0):
                if error := message.error():
                    raise RuntimeError(str(error))
                topic_partition, offset = (message.topic(), message.partition()), message.offset()
                if offset >= end_offsets.get(topic_partition, 0):
                    continue
                parts = [pack("<iq", message.partition(), offset)]
                fields = [message.key(), message.value()]
                for name, value in message.headers() or ():
                    fields += [name.encode(), value]
                for field_bytes in fields:
                    parts += [_NULL] if field_bytes is None else [pack("<i", len(field_bytes)), field_bytes]
                output.write(b"".join(parts))
                count += 1
                if offset + 1 >= end_offsets[topic_partition]:
                    del end_offsets[topic_partition]
                    # Writers go on. Their new messages are outside the range and need not be read.
                    consumer.pause([TopicPartition(*topic_partition)])
        output.flush()
        os.fsync(output.fileno())
    seconds = time.perf_counter() - started
    consumer.close()
    usage_after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_s": usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime,
        "peak_bytes": usage_after.ru_maxrss * 1024,
        "messages": count,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))))
