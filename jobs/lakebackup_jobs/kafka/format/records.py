"""Kafka records in Avro's binary form: write one, find every part of many, count, cut out.

A block is the uncompressed bytes of some records one after another. Nothing here makes a Python object per
record. Every read is checked against the block's end, so that damaged bytes give Damaged, not a crash.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lakebackup.errors import Damaged
from lakebackup_jobs.kafka.format.schemas import FORMAT_V1, FORMAT_V2, SCHEMA_V2, TIMESTAMP_TYPES
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, copy_bytes, load8

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Columns of the table that `decode_block` fills, one row a record; positions are into the block, length -1
#: is null.
PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, TOPIC, TOPIC_LENGTH, KEY, KEY_LENGTH = range(8)
VALUE, VALUE_LENGTH, HEADERS, HEADER_COUNT, START, END, WIDTH = range(8, 15)
#: A tally's slots.
ENTRIES, MIN_TS, MAX_TS, FIRST, LAST, NULL_KEYS, TOMBSTONES, LOW, HIGH, TALLY = range(10)
KEY_LIMIT = 64
KEY_KEPT = KEY_LIMIT + 1
SMALLEST_RECORD = 7
_FILE_COLUMNS = (
    "entries", "bytes", "raw_bytes", "sha256", "min_ts", "max_ts", "start_position", "end_position",
    "start_key", "end_key", "null_keys", "tombstones", "min_tid", "max_tid",
)  # fmt: skip
# A name of its own: inside FileStats, `bytes` is a field.
Filter = bytes


# --- writing


@compiled
def put_long(block: Bytes, at: int, value: int) -> int:
    """Write a zigzag varint; returns the position after it."""
    rest = (value << 1) ^ (value >> 63)
    while rest & ~0x7F:
        block[at] = (rest & 0x7F) | 0x80
        at += 1
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    block[at] = rest
    return at + 1


@compiled
def put_bytes(block: Bytes, base: int, at: int, source: int, length: int) -> int:
    """Write a length and as many bytes from the address `source`; `base` is the block's address."""
    at = put_long(block, at, length)
    copy_bytes(base + at, source, length)
    return at + length


@compiled
def put_nullable(block: Bytes, base: int, at: int, source: int, length: int) -> int:
    """Write ["null", "bytes"]; the address 0 is null."""
    if source == 0:
        block[at] = 0
        return at + 1
    block[at] = 2
    return put_bytes(block, base, at + 1, source, length)


# --- counting


@compiled
def compare(kept: Bytes, length: int, key: int, key_length: int) -> int:
    """Byte order of a kept key and the one at the address `key`: negative, 0 or positive."""
    for i in range(min(length, key_length)):
        difference = np.int64(kept[i]) - (load8(key + i) & 0xFF)
        if difference != 0:
            return int(difference)
    return length - key_length


@compiled
def tally(
    sums: Longs, low: Bytes, high: Bytes, offset: int, ts: int, key: int, key_length: int, value_length: int
) -> None:
    """Count one record; lengths are -1 for null, `key` is an address."""
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
    kept = min(key_length, KEY_KEPT)
    if sums[LOW] < 0 or compare(low, sums[LOW], key, kept) > 0:
        copy_bytes(low.ctypes.data, key, kept)
        sums[LOW] = kept
    if sums[HIGH] < 0 or compare(high, sums[HIGH], key, kept) < 0:
        copy_bytes(high.ctypes.data, key, kept)
        sums[HIGH] = kept


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Figures of `entries` > 0 records.

    Timestamps in ms (-1: none), least and greatest. Positions: [first offset, last offset + 1) in reading
    order. `low_key` and `high_key`: least and greatest non-null key in byte order, each cut at KEY_LIMIT + 1
    bytes; None if all are null. `min_tid`, `max_tid`: of an engine's messages; None where they were not read.
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
        """The figures of both runs, `later` being the one read afterwards."""
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
        """A lower bound of the keys in lower hex, cut at 64 bytes; None when there is no key."""
        return None if self.low_key is None else self.low_key[:KEY_LIMIT].hex()

    @property
    def end_key(self) -> str | None:
        """An upper bound (inclusive) of the keys in lower hex; rounded up where cut at 64 bytes.

        None when there is no key, or when the cut key is all 0xff and so has no upper bound of that length.
        """
        if self.high_key is None or len(self.high_key) <= KEY_LIMIT:
            return None if self.high_key is None else self.high_key.hex()
        kept = self.high_key[:KEY_LIMIT].rstrip(b"\xff")
        return (kept[:-1] + bytes([kept[-1] + 1])).hex() if kept else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStats(BlockStats):
    """One data file as the catalog's `files` describes it: its size in bytes, stored and before compression.

    `keys`: its key filter as it is stored; None when there is none.
    """

    bytes: int
    raw_bytes: int
    sha256: str
    keys: Filter | None = field(default=None, repr=False)

    def columns(self) -> dict[str, Any]:
        """The columns of the file's row: all but the filter, of which a row has only the place."""
        return {name: getattr(self, name) for name in _FILE_COLUMNS}


class Tally:
    """The arrays compiled code counts in."""

    def __init__(self) -> None:
        self.sums: Longs = np.zeros(TALLY, np.int64)
        self.low: Bytes = np.zeros(KEY_KEPT, np.uint8)
        self.high: Bytes = np.zeros(KEY_KEPT, np.uint8)

    def stats(self) -> BlockStats | None:
        """What was counted; None when no record was."""
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
def take_long(block: Bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint at `at` and the position after it, which is -1 if it is cut off or too long."""
    # Written so that it is compiled into its callers, with the short numbers first.
    if at >= end:
        return 0, -1
    byte = int(block[at])
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    result = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at >= end:
            return 0, -1
        byte = int(block[at])
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        result |= (byte & 0x7F) << shift
        shift += 7
    return ((result >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(result & 1), at


@compiled
def take_bytes(block: Bytes, at: int, end: int) -> tuple[int, int]:
    """Length and position of bytes or a string at `at`; position -1 if they pass the end."""
    length, at = take_long(block, at, end)
    if at < 0 or length < 0 or length > end - at:
        return 0, -1
    return length, at


@compiled
def take_optional(block: Bytes, at: int, end: int, null: int) -> tuple[int, int, int]:
    """A union of null (branch number `null`) and bytes: length (-1: null), position, position after; -1 if
    wrong."""
    branch, at = take_long(block, at, end)
    if at < 0 or branch < 0 or branch > 1:
        return 0, -1, -1
    if branch == null:
        return -1, at, at
    length, at = take_bytes(block, at, end)
    if at < 0:
        return 0, -1, -1
    return length, at, at + length


@compiled
def take_headers(  # noqa: C901 (calls between compiled functions cost)
    block: Bytes, at: int, end: int, v1: bool, found: Longs, row: int
) -> tuple[int, int]:
    """Walk one record's headers: their count and the position after them, -1 if wrong.

    Fills `found[row:]` (key position, key length, value position, value length) if it has rows at all.
    """
    total = 0
    if v1:
        branch, at = take_long(block, at, end)
        if at < 0 or branch < 0 or branch > 1:
            return 0, -1
        if branch == 1:
            return 0, at
    while True:
        items, at = take_long(block, at, end)
        if at < 0:
            return 0, -1
        if items == 0:
            return total, at
        if items < 0:
            items = -items
            size, at = take_long(block, at, end)
            if at < 0 or size < 0:
                return 0, -1
        if items < 0 or items > end - at:
            return 0, -1
        for _ in range(items):
            key_length, key = take_bytes(block, at, end)
            if key < 0:
                return 0, -1
            at = key + key_length
            if v1:
                value_length, value = take_bytes(block, at, end)
                at = value + value_length
            else:
                value_length, value, at = take_optional(block, at, end, 0)
            if value < 0:
                return 0, -1
            if found.shape[0] > 0:
                found[row + total, 0] = key
                found[row + total, 1] = key_length
                found[row + total, 2] = value
                found[row + total, 3] = value_length
            total += 1


@compiled
def decode(block: Bytes, v1: bool, rows: Longs, nothing: Longs) -> int:
    """Fill `rows`, one a record; -1 when the records are exactly the block, else where reading stopped."""
    end = block.shape[0]
    at = 0
    for i in range(rows.shape[0]):
        start = at
        row = rows[i]
        length, at = take_bytes(block, at, end)
        if at < 0:
            return start
        row[TOPIC], row[TOPIC_LENGTH] = at, length
        partition, at = take_long(block, at + length, end)
        if at < 0 or partition < 0 or partition > 0x7FFFFFFF:
            return start
        row[PARTITION] = partition
        row[OFFSET], at = take_long(block, at, end)
        if at < 0:
            return start
        row[TIMESTAMP], at = take_long(block, at, end)
        if at < 0:
            return start
        kind = 0
        if not v1:
            kind, at = take_long(block, at, end)
            if at < 0 or kind < 0 or kind > 2:
                return start
        row[TIMESTAMP_TYPE] = kind
        row[KEY_LENGTH], row[KEY], at = take_optional(block, at, end, 1 if v1 else 0)
        if at < 0:
            return start
        if v1:
            row[VALUE_LENGTH], row[VALUE] = take_bytes(block, at, end)
            at = row[VALUE] + row[VALUE_LENGTH] if row[VALUE] >= 0 else -1
        else:
            row[VALUE_LENGTH], row[VALUE], at = take_optional(block, at, end, 0)
        if at < 0:
            return start
        row[HEADERS] = at
        row[HEADER_COUNT], at = take_headers(block, at, end, v1, nothing, 0)
        if at < 0:
            return start
        row[START], row[END] = start, at
    return -1 if at == end else at


@compiled
def find_headers(block: Bytes, v1: bool, rows: Longs, found: Longs) -> None:
    """Fill `found` with the headers of every record in order, as `take_headers` does."""
    total = 0
    for i in range(rows.shape[0]):
        count, _ = take_headers(block, rows[i, HEADERS], block.shape[0], v1, found, total)
        total += count


@compiled
def pack(block: Bytes, rows: Longs, out: Bytes, sums: Longs, low: Bytes, high: Bytes) -> int:
    """Count the records, and copy them to `out` if it has room.

    Neighbours are copied in one go. Returns the bytes that were copied.
    """
    base = block.ctypes.data
    target = out.ctypes.data
    size = 0
    begin = -1
    finish = -1
    for i in range(rows.shape[0]):
        row = rows[i]
        key_length, value_length = row[KEY_LENGTH], row[VALUE_LENGTH]
        tally(sums, low, high, row[OFFSET], row[TIMESTAMP], base + row[KEY], key_length, value_length)
        if out.shape[0] > 0:
            if finish != row[START]:
                if begin >= 0:
                    copy_bytes(target + size, base + begin, finish - begin)
                    size += finish - begin
                begin = row[START]
            finish = row[END]
    if begin >= 0:
        copy_bytes(target + size, base + begin, finish - begin)
        size += finish - begin
    return size


@dataclass(frozen=True, slots=True)
class Block:
    """Uncompressed Avro bytes of some records, and what is known of them; `opens`: a file begins with it.

    `hashes`: of the keys, as key_filter.hash_key gives them; None where they are not needed.
    """

    data: Bytes
    stats: BlockStats
    opens: bool = False
    hashes: Longs | None = None

    def columns(self, where: str = "block") -> Columns:
        """The records of a version 2 block, as a `Reader` gives it; see decode_block."""
        return decode_block(self.data, self.stats.entries, FORMAT_V2, where)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where every part of every record of a block is: `rows` is int64[records, WIDTH]."""

    data: Bytes
    rows: Longs
    fmt: str

    @property
    def v1(self) -> bool:
        return self.fmt == FORMAT_V1

    def headers(self) -> Longs:
        """All records' headers in order: int64[headers, 4] of key position, length, value position,
        length."""
        total = int(self.rows[:, HEADER_COUNT].sum())
        found: Longs = np.empty((total, 4), np.int64)
        if total:
            find_headers(self.data, self.v1, self.rows, found)
        return found

    def stats(self) -> BlockStats | None:
        """The figures of the records; None when there is none."""
        return self._pack(np.empty(0, np.uint8))[1]

    def packed(self) -> Block | None:
        """The records as a block of the same format; None when there is none."""
        out: Bytes = np.empty(self.data.shape[0], np.uint8)
        size, stats = self._pack(out)
        return None if stats is None else Block(out[:size], stats)

    def _pack(self, out: Bytes) -> tuple[int, BlockStats | None]:
        counted = Tally()
        size = pack(self.data, self.rows, out, counted.sums, counted.low, counted.high)
        return size, counted.stats()


def decode_block(
    data: bytes | bytearray | memoryview | Bytes, count: int, fmt: str = FORMAT_V2, where: str = "block"
) -> Columns:
    """Find the parts of the `count` records that `data` is; raises Damaged (naming `where` and the byte) if
    it is not."""
    block: Bytes = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data
    if count < 0 or count * SMALLEST_RECORD > block.shape[0]:
        raise Damaged(f"{where}: {count} records cannot be in {block.shape[0]} bytes.")
    rows: Longs = np.empty((count, WIDTH), np.int64)
    stopped = decode(block, fmt == FORMAT_V1, rows, np.empty((0, 4), np.int64))
    if stopped >= 0:
        raise Damaged(f"{where}: byte {stopped} of this block of {count} records is not a record of {fmt}.")
    return Columns(block, rows, fmt)


def within(columns: Columns, after: int | None, until: int | None, least: int = 0) -> Columns:
    """The records with timestamp in (after, until] and offset >= least, over the same bytes."""
    rows = columns.rows
    chosen = rows[:, OFFSET] >= least
    if after is not None:
        chosen &= rows[:, TIMESTAMP] > after
    if until is not None:
        chosen &= rows[:, TIMESTAMP] <= until
    return columns if chosen.all() else replace(columns, rows=rows[chosen])


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
    """One record in version 2; `kind`: the place in TIMESTAMP_TYPES."""
    import fastavro

    out = io.BytesIO()
    row = {
        "topic": topic, "partition": partition, "offset": offset, "timestamp": ts,
        "timestamp_type": TIMESTAMP_TYPES[kind], "key": key, "value": value,
        "headers": [{"key": name, "value": content} for name, content in headers],
    }  # fmt: skip
    fastavro.schemaless_writer(out, json.loads(SCHEMA_V2), row)
    return out.getvalue()
