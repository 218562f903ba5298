"""Kafka records in Avro's binary form: writes one, finds the parts of many, counts them, copies some of them.

A block is the uncompressed bytes of some records, one after another. `decode` walks a block once and fills a
table with the position and length of each part of each record, so no record becomes a Python object. Every
read is checked against the block's end, so that damaged bytes give Damaged, not a crash.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import fastavro
import numpy as np

from lakebackup.errors import Damaged
from lakebackup_jobs.kafka.format.schemas import FORMAT_V1, FORMAT_V2, SCHEMA_V2, TIMESTAMP_TYPES
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, copy_bytes, load8

#: Columns of the table that `decode_block` fills, one row per record. Positions count from the block's start;
#: length -1 is null.
PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, TOPIC, TOPIC_LENGTH, KEY, KEY_LENGTH = range(8)
VALUE, VALUE_LENGTH, HEADERS, HEADER_COUNT, START, END, WIDTH = range(8, 15)
#: The slots of a tally's `sums`.
ENTRIES, MIN_TS, MAX_TS, FIRST, LAST, NULL_KEYS, TOMBSTONES, LOW, HIGH, TALLY = range(10)
KEY_LIMIT = 64
KEY_KEPT = KEY_LIMIT + 1
SMALLEST_RECORD = 7
_FILE_COLUMNS = (
    "entries", "bytes", "raw_bytes", "sha256", "min_ts", "max_ts", "start_position", "end_position",
    "start_key", "end_key", "null_keys", "tombstones", "min_tid", "max_tid",
)  # fmt: skip
# An alias, since inside FileStats `bytes` is a field.
Filter = bytes


# --- writing


@compiled
def put_long(block: Bytes, position: int, value: int) -> int:
    """Write a zigzag varint at position `position`; returns the position after it."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag & ~0x7F:
        block[position] = (zigzag & 0x7F) | 0x80
        position += 1
        zigzag = (zigzag >> 7) & 0x01FFFFFFFFFFFFFF
    block[position] = zigzag
    return position + 1


@compiled
def put_bytes(block: Bytes, base: int, position: int, source: int, length: int) -> int:
    """Write a length, and as many bytes from the address `source`; returns the position after them.

    `base`: the block's address.
    """
    position = put_long(block, position, length)
    copy_bytes(base + position, source, length)
    return position + length


@compiled
def put_nullable(block: Bytes, base: int, position: int, source: int, length: int) -> int:
    """Like put_bytes, for Avro's union ["null", "bytes"]; the address 0 is null."""
    if source == 0:
        block[position] = 0
        return position + 1
    block[position] = 2
    return put_bytes(block, base, position + 1, source, length)


# --- counting


@compiled
def compare(prefix: Bytes, length: int, key: int, key_length: int) -> int:
    """Compare the key in `prefix` with the one at the address `key` by bytes: negative, 0 or positive."""
    for i in range(min(length, key_length)):
        difference = np.int64(prefix[i]) - (load8(key + i) & 0xFF)
        if difference != 0:
            return int(difference)
    return length - key_length


@compiled
def tally(
    sums: Longs, low: Bytes, high: Bytes, offset: int, ts: int, key: int, key_length: int, value_length: int
) -> None:
    """Count one record. Lengths are -1 for null; `key` is an address. Copies keys to `low` and `high`."""
    if sums[ENTRIES] == 0:
        sums[MIN_TS], sums[MAX_TS], sums[FIRST], sums[LOW], sums[HIGH] = ts, ts, offset, -1, -1
    sums[ENTRIES] += 1
    sums[LAST] = offset
    if ts < sums[MIN_TS]:
        sums[MIN_TS] = ts
    if ts > sums[MAX_TS]:
        sums[MAX_TS] = ts
    if value_length < 0:
        sums[TOMBSTONES] += 1
    if key_length < 0:
        sums[NULL_KEYS] += 1
        return
    length = min(key_length, KEY_KEPT)
    if sums[LOW] < 0 or compare(low, sums[LOW], key, length) > 0:
        copy_bytes(low.ctypes.data, key, length)
        sums[LOW] = length
    if sums[HIGH] < 0 or compare(high, sums[HIGH], key, length) < 0:
        copy_bytes(high.ctypes.data, key, length)
        sums[HIGH] = length


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Figures of at least one record; `entries` is their number.

    `min_ts`, `max_ts`: in ms (-1: none). Positions: [first offset, last offset + 1) in reading order.
    `low_key` and `high_key`: least and greatest non-null key in byte order, each cut at KEY_LIMIT + 1 bytes;
    None if all are null. `min_tid`, `max_tid`: of an engine's messages; None where they were not read.
    """

    entries: int
    min_ts: int
    max_ts: int
    start_position: int
    end_position: int
    null_keys: int
    tombstones: int
    low_key: bytes | None
    high_key: bytes | None
    min_tid: int | None = None
    max_tid: int | None = None

    def __add__(self, later: BlockStats) -> BlockStats:
        """The figures of these records and of `later` ones, which were read after them."""
        low = [key for key in (self.low_key, later.low_key) if key is not None]
        high = [key for key in (self.high_key, later.high_key) if key is not None]
        bounds = (self.min_tid, self.max_tid, later.min_tid, later.max_tid)
        tids = [tid for tid in bounds if tid is not None]
        return replace(
            self,
            entries=self.entries + later.entries,
            min_ts=min(self.min_ts, later.min_ts),
            max_ts=max(self.max_ts, later.max_ts),
            end_position=later.end_position,
            null_keys=self.null_keys + later.null_keys,
            tombstones=self.tombstones + later.tombstones,
            low_key=min(low, default=None),
            high_key=max(high, default=None),
            min_tid=min(tids) if len(tids) == 4 else None,
            max_tid=max(tids) if len(tids) == 4 else None,
        )

    @property
    def start_key(self) -> str | None:
        """A lower bound (inclusive) of the keys in lower hex, cut at 64 bytes; None when there is no key."""
        return None if self.low_key is None else self.low_key[:KEY_LIMIT].hex()

    @property
    def end_key(self) -> str | None:
        """An upper bound (inclusive) of the keys in lower hex; rounded up where cut at 64 bytes.

        None when there is no key, or when the cut key is all 0xff and so has no upper bound of that length.
        """
        if self.high_key is None or len(self.high_key) <= KEY_LIMIT:
            return None if self.high_key is None else self.high_key.hex()
        prefix = self.high_key[:KEY_LIMIT].rstrip(b"\xff")
        return (prefix[:-1] + bytes([prefix[-1] + 1])).hex() if prefix else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStats(BlockStats):
    """Figures of one data file, as the catalog's `files` has them.

    `bytes`: the file's size. `raw_bytes`: the size of its blocks before compression. `keys`: its key filter
    as stored; None when there is none.
    """

    bytes: int
    raw_bytes: int
    sha256: str
    keys: Filter | None = field(default=None, repr=False)

    def columns(self) -> dict[str, Any]:
        """The columns of the file's row. The filter is none of them: a row only has its location."""
        return {name: getattr(self, name) for name in _FILE_COLUMNS}


class Tally:
    """The arrays that compiled code counts records in: see `tally`."""

    def __init__(self) -> None:
        self.sums: Longs = np.zeros(TALLY, np.int64)
        self.low: Bytes = np.zeros(KEY_KEPT, np.uint8)
        self.high: Bytes = np.zeros(KEY_KEPT, np.uint8)

    def stats(self) -> BlockStats | None:
        """Return the figures of the counted records; None when none was counted."""
        sums = self.sums.tolist()
        if not sums[ENTRIES]:
            return None
        return BlockStats(
            entries=sums[ENTRIES],
            min_ts=sums[MIN_TS],
            max_ts=sums[MAX_TS],
            start_position=sums[FIRST],
            end_position=sums[LAST] + 1,
            null_keys=sums[NULL_KEYS],
            tombstones=sums[TOMBSTONES],
            low_key=self.low[: sums[LOW]].tobytes() if sums[LOW] >= 0 else None,
            high_key=self.high[: sums[HIGH]].tobytes() if sums[HIGH] >= 0 else None,
        )


# --- reading


@compiled
def take_long(block: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read a zigzag varint; returns it and the position after it, or -1 if it is cut off or too long."""
    # In this form it is inlined into its callers. One-byte numbers come first, since they are frequent.
    if position >= end:
        return 0, -1
    byte = int(block[position])
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    result = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if position >= end:
            return 0, -1
        byte = int(block[position])
        position += 1
        if shift == 63 and byte > 1:
            return 0, -1
        result |= (byte & 0x7F) << shift
        shift += 7
    return ((result >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(result & 1), position


@compiled
def take_bytes(block: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return length and position of the bytes or string at `position`; position -1 if they exceed the end."""
    length, position = take_long(block, position, end)
    if position < 0 or length < 0 or length > end - position:
        return 0, -1
    return length, position


@compiled
def take_optional(block: Bytes, position: int, end: int, null: int) -> tuple[int, int, int]:
    """Read a union of bytes and null, whose branch has the number `null`.

    Returns the length (-1: null), the position and the position after; the latter two are -1 if it is wrong.
    """
    branch, position = take_long(block, position, end)
    if position < 0 or branch < 0 or branch > 1:
        return 0, -1, -1
    if branch == null:
        return -1, position, position
    length, position = take_bytes(block, position, end)
    if position < 0:
        return 0, -1, -1
    return length, position, position + length


@compiled
def take_headers(  # noqa: C901 (calls between compiled functions cost)
    block: Bytes, position: int, end: int, v1: bool, headers: Longs, row: int
) -> tuple[int, int]:
    """Read one record's headers; returns their number and the position after them, -1 if they are wrong.

    Fills `headers[row:]` (key position, key length, value position, value length) unless it has no rows.
    """
    total = 0
    if v1:
        branch, position = take_long(block, position, end)
        if position < 0 or branch < 0 or branch > 1:
            return 0, -1
        if branch == 1:
            return 0, position
    while True:
        items, position = take_long(block, position, end)
        if position < 0:
            return 0, -1
        if items == 0:
            return total, position
        if items < 0:
            items = -items
            size, position = take_long(block, position, end)
            if position < 0 or size < 0:
                return 0, -1
        if items < 0 or items > end - position:
            return 0, -1
        for _ in range(items):
            key_length, key = take_bytes(block, position, end)
            if key < 0:
                return 0, -1
            position = key + key_length
            if v1:
                value_length, value = take_bytes(block, position, end)
                position = value + value_length
            else:
                value_length, value, position = take_optional(block, position, end, 0)
            if value < 0:
                return 0, -1
            if headers.shape[0] > 0:
                headers[row + total, 0] = key
                headers[row + total, 1] = key_length
                headers[row + total, 2] = value
                headers[row + total, 3] = value_length
            total += 1


@compiled
def decode(block: Bytes, v1: bool, rows: Longs, nothing: Longs) -> int:
    """Fill `rows`, one per record. `nothing`: an array without rows.

    Returns -1 when the records are exactly the block. Otherwise returns the position of the first record that
    is wrong, or of bytes after the last.
    """
    end = block.shape[0]
    position = 0
    for i in range(rows.shape[0]):
        start = position
        row = rows[i]
        length, position = take_bytes(block, position, end)
        if position < 0:
            return start
        row[TOPIC], row[TOPIC_LENGTH] = position, length
        partition, position = take_long(block, position + length, end)
        if position < 0 or partition < 0 or partition > 0x7FFFFFFF:
            return start
        row[PARTITION] = partition
        row[OFFSET], position = take_long(block, position, end)
        if position < 0:
            return start
        row[TIMESTAMP], position = take_long(block, position, end)
        if position < 0:
            return start
        kind = 0
        if not v1:
            kind, position = take_long(block, position, end)
            if position < 0 or kind < 0 or kind > 2:
                return start
        row[TIMESTAMP_TYPE] = kind
        row[KEY_LENGTH], row[KEY], position = take_optional(block, position, end, 1 if v1 else 0)
        if position < 0:
            return start
        if v1:
            row[VALUE_LENGTH], row[VALUE] = take_bytes(block, position, end)
            position = row[VALUE] + row[VALUE_LENGTH] if row[VALUE] >= 0 else -1
        else:
            row[VALUE_LENGTH], row[VALUE], position = take_optional(block, position, end, 0)
        if position < 0:
            return start
        row[HEADERS] = position
        row[HEADER_COUNT], position = take_headers(block, position, end, v1, nothing, 0)
        if position < 0:
            return start
        row[START], row[END] = start, position
    return -1 if position == end else position


@compiled
def find_headers(block: Bytes, v1: bool, rows: Longs, headers: Longs) -> None:
    """Fill `headers` with the headers of every record in order, as `take_headers` does."""
    total = 0
    for i in range(rows.shape[0]):
        count, _ = take_headers(block, rows[i, HEADERS], block.shape[0], v1, headers, total)
        total += count


@compiled
def pack(block: Bytes, rows: Longs, destination: Bytes, sums: Longs, low: Bytes, high: Bytes) -> int:
    """Count the records, and copy them to `destination` unless it is empty.

    Adjacent records are copied together. Returns the number of bytes copied.
    """
    base = block.ctypes.data
    target = destination.ctypes.data
    size = 0
    run_start = -1
    run_end = -1
    for i in range(rows.shape[0]):
        row = rows[i]
        key_length, value_length = row[KEY_LENGTH], row[VALUE_LENGTH]
        tally(sums, low, high, row[OFFSET], row[TIMESTAMP], base + row[KEY], key_length, value_length)
        if destination.shape[0] > 0:
            if run_end != row[START]:
                if run_start >= 0:
                    copy_bytes(target + size, base + run_start, run_end - run_start)
                    size += run_end - run_start
                run_start = row[START]
            run_end = row[END]
    if run_start >= 0:
        copy_bytes(target + size, base + run_start, run_end - run_start)
        size += run_end - run_start
    return size


@dataclass(frozen=True, slots=True)
class Block:
    """The uncompressed Avro bytes of some records, and their figures. `opens`: a file begins with this block.

    `hashes`: those of the keys, by key_filter.hash_key; None where no key filter is needed.
    """

    data: Bytes
    stats: BlockStats
    opens: bool = False
    hashes: Longs | None = None

    def columns(self, location: str = "block") -> Columns:
        """The records of a version 2 block, which is what a `Reader` yields; see decode_block."""
        return decode_block(self.data, self.stats.entries, FORMAT_V2, location)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each part of each record of a block is: `rows` is int64[records, WIDTH]."""

    data: Bytes
    rows: Longs
    fmt: str

    @property
    def v1(self) -> bool:
        return self.fmt == FORMAT_V1

    def headers(self) -> Longs:
        """All records' headers in order: int64[headers, 4] of position and length of key and value."""
        total = int(self.rows[:, HEADER_COUNT].sum())
        headers: Longs = np.empty((total, 4), np.int64)
        if total:
            find_headers(self.data, self.v1, self.rows, headers)
        return headers

    def stats(self) -> BlockStats | None:
        """The figures of the records; None when there are no records."""
        return self._pack(np.empty(0, np.uint8))[1]

    def packed(self) -> Block | None:
        """The records as a block of the same format; None when there are no records."""
        buffer: Bytes = np.empty(self.data.shape[0], np.uint8)
        size, stats = self._pack(buffer)
        return None if stats is None else Block(buffer[:size], stats)

    def _pack(self, buffer: Bytes) -> tuple[int, BlockStats | None]:
        counts = Tally()
        size = pack(self.data, self.rows, buffer, counts.sums, counts.low, counts.high)
        return size, counts.stats()


def decode_block(
    data: bytes | bytearray | memoryview | Bytes, count: int, fmt: str = FORMAT_V2, location: str = "block"
) -> Columns:
    """Find the parts of the `count` records in `data`.

    Raises Damaged, which names `location` and the byte, when `data` is not exactly that many records.
    """
    block: Bytes = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data
    if count < 0 or count * SMALLEST_RECORD > block.shape[0]:
        raise Damaged(f"{location}: {count} records cannot be in {block.shape[0]} bytes.")
    rows: Longs = np.empty((count, WIDTH), np.int64)
    position = decode(block, fmt == FORMAT_V1, rows, np.empty((0, 4), np.int64))
    if position >= 0:
        raise Damaged(
            f"{location}: byte {position} of this block of {count} records is not a record of {fmt}."
        )
    return Columns(block, rows, fmt)


def select_records(columns: Columns, after_ts: int | None, until: int | None, least: int = 0) -> Columns:
    """Return the records with timestamp (ms) in (after, until] and offset >= least. They share the bytes."""
    rows = columns.rows
    mask = rows[:, OFFSET] >= least
    if after_ts is not None:
        mask &= rows[:, TIMESTAMP] > after_ts
    if until is not None:
        mask &= rows[:, TIMESTAMP] <= until
    return columns if mask.all() else replace(columns, rows=rows[mask])


def encode_record(
    topic: str,
    partition: int,
    offset: int,
    ts: int,
    kind: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> bytes:
    """Return one record in version 2. `ts`: in ms. `kind`: its type's index in TIMESTAMP_TYPES."""
    stream = io.BytesIO()
    record = {
        "topic": topic, "partition": partition, "offset": offset, "timestamp": ts,
        "timestamp_type": TIMESTAMP_TYPES[kind], "key": key, "value": value,
        "headers": [{"key": name, "value": content} for name, content in headers],
    }  # fmt: skip
    fastavro.schemaless_writer(stream, json.loads(SCHEMA_V2), record)
    return stream.getvalue()
