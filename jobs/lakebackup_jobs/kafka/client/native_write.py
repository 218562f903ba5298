"""From a decoded block to librdkafka's producing queue, in compiled code."""

from __future__ import annotations

from lakebackup_jobs.kafka.client import library
from lakebackup_jobs.kafka.format.records import (
    HEADER_COUNT,
    KEY,
    KEY_LENGTH,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
)
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, external

library.load()
_produce = external("rd_kafka_produceva", "l", "lll")
_headers_new = external("rd_kafka_headers_new", "l", "l")
_header_add = external("rd_kafka_header_add", "i", "lllll")
_headers_destroy = external("rd_kafka_headers_destroy", "v", "l")

#: rd_kafka_vtype_t, and the flag that makes librdkafka keep its own copy.
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _TIMESTAMP, _HEADERS = 2, 3, 4, 5, 7, 8, 10
_COPY = 2
#: An argument is nine longs: the tag, then the union.
_WIDE = library.ARGUMENT_BYTES // 8
ARGUMENTS = 7 * _WIDE


@compiled
def send(
    client: int,
    topic: int,
    partition: int,
    block: Bytes,
    rows: Longs,
    headers: Longs,
    arguments: Longs,
    place: Longs,
) -> int:
    """Queue the records `rows[place[0]:]`; `place[1]` is the number of headers used up before them.

    Returns 0 when all are queued, else the address of the error, `place` being where to continue.
    """
    base = block.ctypes.data
    a = arguments
    a[0], a[1] = _TOPIC, topic
    a[_WIDE], a[_WIDE + 1] = _PARTITION, partition
    a[2 * _WIDE] = _VALUE
    a[3 * _WIDE] = _KEY
    a[4 * _WIDE], a[4 * _WIDE + 1] = _FLAGS, _COPY
    for i in range(place[0], rows.shape[0]):
        row = rows[i]
        a[2 * _WIDE + 1] = base + row[VALUE] if row[VALUE_LENGTH] >= 0 else 0
        a[2 * _WIDE + 2] = max(row[VALUE_LENGTH], 0)
        a[3 * _WIDE + 1] = base + row[KEY] if row[KEY_LENGTH] >= 0 else 0
        a[3 * _WIDE + 2] = max(row[KEY_LENGTH], 0)
        used = 5
        ts = row[TIMESTAMP]
        if ts != -1:
            a[used * _WIDE] = _TIMESTAMP
            # The library takes 0 for "now": the caller has agreed to the next millisecond.
            a[used * _WIDE + 1] = ts if ts != 0 else 1
            used += 1
        count = row[HEADER_COUNT]
        added = 0
        if count > 0:
            added = _headers_new(count)
            for j in range(place[1], place[1] + count):
                length = headers[j, 3]
                _header_add(
                    added,
                    base + headers[j, 0],
                    headers[j, 1],
                    base + headers[j, 2] if length >= 0 else 0,
                    max(length, 0),
                )
            a[used * _WIDE] = _HEADERS
            a[used * _WIDE + 1] = added
            used += 1
        error = _produce(client, a.ctypes.data, used)
        if error != 0:
            if added != 0:
                _headers_destroy(added)
            return int(error)
        place[0] = i + 1
        place[1] += count
    return 0
