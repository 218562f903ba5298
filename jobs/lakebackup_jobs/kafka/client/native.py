"""Between librdkafka's messages and blocks of Avro version 2, in compiled code."""

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
USED_UP, BLOCK_FULL, BLOCK_SMALL, ENDED, FAILED, TOO_YOUNG, NOT_TEXT = range(7)
#: Slots of its state: bytes in the block; next offset; end of the range; why; bytes needed, or the timestamp
#: that is too young, or the offset of a record whose header's name is not text; first unread message; the
#: youngest timestamp to take.
POSITION, NEXT, STOP, WHY, NEED, TAKEN, YOUNGEST, STATE = range(8)
#: More than a record needs beside its topic, key, value and headers.
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
    """Whether bytes are UTF-8 as the Unicode standard has it: shortest forms, no surrogates."""
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
def _is_cut(headers: int, name: int, value: int, aside: int) -> bool:
    """Whether a header's name goes on behind a NUL byte, where a C string ends.

    librdkafka looks headers up by their whole names: it does not give this one's value for the part before.
    """
    i = 0
    while _header_by_name(headers, i, name, aside, aside + 8) == 0:
        if load64(aside) == value:
            return False
        i += 1
    return True


@compiled
def encode(  # noqa: C901 (one pass over each message)
    messages: Longs, count: int, block: Bytes, state: Longs, prefix: Bytes, scratch: Longs, sums: Longs,
    low: Bytes, high: Bytes, hashes: Longs
) -> None:  # fmt: skip
    """Append the records of `messages[state[TAKEN]:count]` to `block` and free each message that was taken.

    `prefix`: the record's bytes up to the offset; `hashes` gets the keys' hashes.

    `state[WHY]` is why it stopped: all taken; the block is full (or `hashes`); it is too small for even one
    record (`state[NEED]`); the range's end was met; message `state[TAKEN]` is an error, which is left to the
    caller; its timestamp is above `state[YOUNGEST]`; or a header's name is not text, which Avro cannot hold.
    """
    base = block.ctypes.data
    at = state[POSITION]
    aside = scratch.ctypes.data
    why = USED_UP
    i = state[TAKEN]
    while i < count:
        message = messages[i]
        offset = load64(message + _OFFSET)
        err = load32(message)
        if err != 0:
            if err != _PARTITION_EOF:
                why = FAILED
                break
            if offset >= state[STOP]:
                why = ENDED
                break
            _destroy(message)
            i += 1
            continue
        if offset >= state[STOP]:
            why = ENDED
            break
        if offset < state[NEXT]:
            _destroy(message)
            i += 1
            continue
        value, value_length = load64(message + _PAYLOAD), load64(message + _LENGTH)
        key, key_length = load64(message + _KEY), load64(message + _KEY_LENGTH)
        headers = 0
        header_count = 0
        need = _ROOM + prefix.shape[0] + key_length + value_length
        if _headers(message, aside) == 0:
            headers = scratch[0]
            header_count = _header_count(headers)
            for j in range(header_count):
                _header(headers, j, aside, aside + 8, aside + 16)
                length = _text_length(scratch[0])
                need += length + scratch[2] + _HEADER_ROOM
                if not is_utf8(scratch[0], length) or _is_cut(headers, scratch[0], scratch[1], aside + 24):
                    why = NOT_TEXT
                    break
            if why == NOT_TEXT:
                state[NEED] = offset
                break
        if need > block.shape[0] - at or sums[ENTRIES] - sums[NULL_KEYS] == hashes.shape[0]:
            why = BLOCK_FULL if at > 0 else BLOCK_SMALL
            state[NEED] = need
            break
        scratch[3] = 0
        ts = _timestamp(message, aside + 24)
        kind = scratch[3] & 0x7FFFFFFF
        if kind == 0:
            ts = -1
        if ts > state[YOUNGEST]:
            why = TOO_YOUNG
            state[NEED] = ts
            break
        copy_bytes(base + at, prefix.ctypes.data, prefix.shape[0])
        at = put_long(block, at + prefix.shape[0], offset)
        at = put_long(block, at, ts)
        at = put_long(block, at, kind)
        at = put_nullable(block, base, at, key, key_length)
        at = put_nullable(block, base, at, value, value_length)
        if header_count > 0:
            at = put_long(block, at, header_count)
            for j in range(header_count):
                _header(headers, j, aside, aside + 8, aside + 16)
                at = put_bytes(block, base, at, scratch[0], _text_length(scratch[0]))
                at = put_nullable(block, base, at, scratch[1], scratch[2])
        block[at] = 0
        at += 1
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
    state[POSITION] = at
    state[TAKEN] = i
    state[WHY] = why


def preload() -> None:
    """Load `encode` from the cache of compiled code: processes forked from this one then share it."""
    longs, data, counted = np.zeros(STATE, np.int64), np.zeros(_ROOM, np.uint8), Tally()
    encode(longs, 0, data, longs, data, longs, counted.sums, counted.low, counted.high, longs)


@compiled
def destroy(messages: Longs, first: int, count: int) -> None:
    """Free the messages that were not taken."""
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
    place: Longs,
) -> int:
    """Queue the records `rows[place[0]:]`; `place[1]` is the number of headers used up before them.

    Returns 0 when all are queued, else the address of the error, `place` being where to continue.
    """
    base = block.ctypes.data
    a = arguments
    a[0], a[1] = _V_TOPIC, topic
    a[_WIDE], a[_WIDE + 1] = _V_PARTITION, partition
    a[2 * _WIDE] = _V_VALUE
    a[3 * _WIDE] = _V_KEY
    a[4 * _WIDE], a[4 * _WIDE + 1] = _V_FLAGS, _COPY
    a[5 * _WIDE] = _V_TIMESTAMP
    for i in range(place[0], rows.shape[0]):
        row = rows[i]
        a[2 * _WIDE + 1] = base + row[VALUE] if row[VALUE_LENGTH] >= 0 else 0
        a[2 * _WIDE + 2] = max(row[VALUE_LENGTH], 0)
        a[3 * _WIDE + 1] = base + row[KEY] if row[KEY_LENGTH] >= 0 else 0
        a[3 * _WIDE + 2] = max(row[KEY_LENGTH], 0)
        # The library takes 0, and no timestamp at all, for "now": the caller has agreed to the next
        # millisecond of the one, and a record without a time is sent with -1, as brokers store it.
        ts = row[TIMESTAMP]
        a[5 * _WIDE + 1] = ts if ts != 0 else 1
        used = 6
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
            a[used * _WIDE] = _V_HEADERS
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
