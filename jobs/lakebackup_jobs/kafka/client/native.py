"""Converts between librdkafka's messages and blocks of records in Avro version 2, in compiled code."""

from __future__ import annotations

import numpy as np

from lakebackup_jobs.kafka.client import librdkafka
from lakebackup_jobs.kafka.format.key_filter import hash_key
from lakebackup_jobs.kafka.format.records import (
    ENTRIES,
    HEADER_COUNT,
    KEY,
    KEY_LENGTH,
    NULL_KEYS,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
    Tally,
    put_bytes,
    put_long,
    put_nullable,
    tally,
)
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, copy_bytes, external, load8, load32, load64

librdkafka.load()
_timestamp = external("rd_kafka_message_timestamp", "l", "ll")
_headers = external("rd_kafka_message_headers", "i", "ll")
_header_count = external("rd_kafka_header_cnt", "l", "l")
_header = external("rd_kafka_header_get_all", "i", "lllll")
_header_by_name = external("rd_kafka_header_get", "i", "lllll")
_destroy = external("rd_kafka_message_destroy", "v", "l")
_produce = external("rd_kafka_produceva", "l", "lll")
_headers_new = external("rd_kafka_headers_new", "l", "l")
_header_add = external("rd_kafka_header_add", "i", "lllll")
_headers_destroy = external("rd_kafka_headers_destroy", "v", "l")

_PARTITION_EOF = -191
_PAYLOAD, _LENGTH, _KEY, _KEY_LENGTH, _OFFSET = (
    getattr(librdkafka.Message, name).offset for name in ("payload", "len", "key", "key_len", "offset")
)
#: Why `encode` stopped.
USED_UP, BLOCK_FULL, BLOCK_SMALL, RANGE_END, FAILED, TOO_YOUNG, NOT_TEXT = range(7)
#: Slots of `encode`'s state: bytes in the block; next offset; end of the range; why it stopped; bytes needed,
#: or the timestamp that is too young, or the offset of a record with a header whose name is not text; first
#: unread message; the youngest timestamp that the file may contain.
POSITION, NEXT, STOP, WHY, NEED, MESSAGE, YOUNGEST, STATE = range(8)
#: At least the bytes that a record needs beside its topic, key, value and headers.
_ROOM = 128
_HEADER_ROOM = 24

#: rd_kafka_vtype_t, and the flag that makes librdkafka keep its own copy.
_V_TOPIC, _V_PARTITION, _V_VALUE, _V_KEY, _V_FLAGS, _V_TIMESTAMP, _V_HEADERS = 2, 3, 4, 5, 7, 8, 10
_COPY = 2
#: An argument is nine longs: the tag, then the union.
_WIDE = librdkafka.ARGUMENT_BYTES // 8
ARGUMENTS = 7 * _WIDE


@compiled
def _text_length(address: int) -> int:
    length = 0
    while load8(address + length) != 0:
        length += 1
    return length


@compiled
def is_utf8(address: int, length: int) -> bool:
    """Return whether bytes are UTF-8 as the Unicode standard defines it: shortest forms, no surrogates."""
    i = 0
    while i < length:
        lead = load8(address + i) & 0xFF
        i += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        tail = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if i + tail > length:
            return False
        second = load8(address + i) & 0xFF
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for j in range(1, tail):
            if load8(address + i + j) & 0xC0 != 0x80:
                return False
        i += tail
    return True


@compiled
def _is_cut(headers: int, name: int, value: int, results: int) -> bool:
    """Return whether a header's name continues behind a NUL byte, where a C string ends.

    librdkafka finds headers by their whole names. So if the part before the NUL byte does not find this
    header's value, the name continues. `results`: the address that librdkafka writes its results to.
    """
    i = 0
    while _header_by_name(headers, i, name, results, results + 8) == 0:
        if load64(results) == value:
            return False
        i += 1
    return True


@compiled
def encode(  # noqa: C901 (one pass over each message)
    messages: Longs, count: int, block: Bytes, state: Longs, prefix: Bytes, scratch: Longs, sums: Longs,
    low: Bytes, high: Bytes, hashes: Longs
) -> None:  # fmt: skip
    """Append the records of `messages[state[TAKEN]:count]` to `block`, and free each message that was read.

    `prefix`: the record's bytes before the offset. `hashes` receives the keys' hashes.

    `state[WHY]` is why it stopped: all messages were read; the block or `hashes` is full; the block is too
    small for one record (`state[NEED]` bytes); the end of the range was reached; message `state[TAKEN]` is an
    error, which the caller handles; its timestamp is above `state[YOUNGEST]`; or one of its headers has a
    name that is not text, which Avro cannot contain.
    """
    base = block.ctypes.data
    position = state[POSITION]
    results = scratch.ctypes.data
    reason = USED_UP
    i = state[MESSAGE]
    while i < count:
        message = messages[i]
        offset = load64(message + _OFFSET)
        error = load32(message)
        if error != 0:
            if error != _PARTITION_EOF:
                reason = FAILED
                break
            if offset >= state[STOP]:
                reason = RANGE_END
                break
            _destroy(message)
            i += 1
            continue
        if offset >= state[STOP]:
            reason = RANGE_END
            break
        if offset < state[NEXT]:
            _destroy(message)
            i += 1
            continue
        value, value_length = load64(message + _PAYLOAD), load64(message + _LENGTH)
        key, key_length = load64(message + _KEY), load64(message + _KEY_LENGTH)
        headers = 0
        header_count = 0
        needed_bytes = _ROOM + prefix.shape[0] + key_length + value_length
        if _headers(message, results) == 0:
            headers = scratch[0]
            header_count = _header_count(headers)
            for j in range(header_count):
                _header(headers, j, results, results + 8, results + 16)
                length = _text_length(scratch[0])
                needed_bytes += length + scratch[2] + _HEADER_ROOM
                if not is_utf8(scratch[0], length) or _is_cut(headers, scratch[0], scratch[1], results + 24):
                    reason = NOT_TEXT
                    break
            if reason == NOT_TEXT:
                state[NEED] = offset
                break
        if needed_bytes > block.shape[0] - position or sums[ENTRIES] - sums[NULL_KEYS] == hashes.shape[0]:
            reason = BLOCK_FULL if position > 0 else BLOCK_SMALL
            state[NEED] = needed_bytes
            break
        scratch[3] = 0
        ts = _timestamp(message, results + 24)
        kind = scratch[3] & 0x7FFFFFFF
        if kind == 0:
            ts = -1
        if ts > state[YOUNGEST]:
            reason = TOO_YOUNG
            state[NEED] = ts
            break
        copy_bytes(base + position, prefix.ctypes.data, prefix.shape[0])
        position = put_long(block, position + prefix.shape[0], offset)
        position = put_long(block, position, ts)
        position = put_long(block, position, kind)
        position = put_nullable(block, base, position, key, key_length)
        position = put_nullable(block, base, position, value, value_length)
        if header_count > 0:
            position = put_long(block, position, header_count)
            for j in range(header_count):
                _header(headers, j, results, results + 8, results + 16)
                position = put_bytes(block, base, position, scratch[0], _text_length(scratch[0]))
                position = put_nullable(block, base, position, scratch[1], scratch[2])
        block[position] = 0
        position += 1
        tally(
            sums,
            low,
            high,
            offset,
            ts,
            key,
            key_length if key != 0 else -1,
            value_length if value != 0 else -1,
        )
        if key != 0:
            hashes[sums[ENTRIES] - sums[NULL_KEYS] - 1] = hash_key(key, key_length)
        state[NEXT] = offset + 1
        _destroy(message)
        i += 1
        if offset + 1 == state[STOP]:  # the next message would only come with another fetch
            reason = RANGE_END
            break
    state[POSITION] = position
    state[MESSAGE] = i
    state[WHY] = reason


def preload() -> None:
    """Load `encode` from the cache of compiled code, so that processes forked from this one share it."""
    longs, data, counts = np.zeros(STATE, np.int64), np.zeros(_ROOM, np.uint8), Tally()
    encode(longs, 0, data, longs, data, longs, counts.sums, counts.low, counts.high, longs)


@compiled
def destroy(messages: Longs, first: int, count: int) -> None:
    """Free `messages[first:count]`, which were not read."""
    for i in range(first, count):
        _destroy(messages[i])


@compiled
def send(
    client: int,
    topic: int,
    partition: int,
    block: Bytes,
    rows: Longs,
    headers: Longs,
    arguments: Longs,
    cursor: Longs,
) -> int:
    """Queue the records `rows[place[0]:]`; `cursor[1]` is the number of headers of the records before them.

    Returns 0 when all are queued. Otherwise returns the error's address, and `cursor` is where to continue.
    """
    base = block.ctypes.data
    a = arguments
    a[0], a[1] = _V_TOPIC, topic
    a[_WIDE], a[_WIDE + 1] = _V_PARTITION, partition
    a[2 * _WIDE] = _V_VALUE
    a[3 * _WIDE] = _V_KEY
    a[4 * _WIDE], a[4 * _WIDE + 1] = _V_FLAGS, _COPY
    a[5 * _WIDE] = _V_TIMESTAMP
    for i in range(cursor[0], rows.shape[0]):
        row = rows[i]
        a[2 * _WIDE + 1] = base + row[VALUE] if row[VALUE_LENGTH] >= 0 else 0
        a[2 * _WIDE + 2] = max(row[VALUE_LENGTH], 0)
        a[3 * _WIDE + 1] = base + row[KEY] if row[KEY_LENGTH] >= 0 else 0
        a[3 * _WIDE + 2] = max(row[KEY_LENGTH], 0)
        # The library replaces timestamp 0, and a missing one, by the present time. So 0 becomes 1 ms, which
        # the caller has agreed to, and a record without a timestamp is sent with -1, as brokers store it.
        ts = row[TIMESTAMP]
        a[5 * _WIDE + 1] = ts if ts != 0 else 1
        argument_count = 6
        header_count = row[HEADER_COUNT]
        record_headers = 0
        if header_count > 0:
            record_headers = _headers_new(header_count)
            for j in range(cursor[1], cursor[1] + header_count):
                length = headers[j, 3]
                _header_add(
                    record_headers,
                    base + headers[j, 0],
                    headers[j, 1],
                    base + headers[j, 2] if length >= 0 else 0,
                    max(length, 0),
                )
            a[argument_count * _WIDE] = _V_HEADERS
            a[argument_count * _WIDE + 1] = record_headers
            argument_count += 1
        error = _produce(client, a.ctypes.data, argument_count)
        if error != 0:
            if record_headers != 0:
                _headers_destroy(record_headers)
            return int(error)
        cursor[0] = i + 1
        cursor[1] += header_count
    return 0
