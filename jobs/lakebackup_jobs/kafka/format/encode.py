"""Encodes rows of Arrow columns as records in Avro's binary form. Only headers become Python objects."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Refused
from lakebackup_jobs.kafka.format.container import record_prefix
from lakebackup_jobs.kafka.format.records import Block, Tally, put_long, put_nullable, tally
from lakebackup_jobs.kafka.format.schemas import TIMESTAMP_TYPES
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, copy_bytes

_CREATE_TIME = TIMESTAMP_TYPES.index("CREATE_TIME")
# The most bytes of offset, timestamp, its type, and the branch and length of key and value.
_ROOM = 10 + 10 + 1 + 2 * 11
_NO_HEADERS = b"\0"


@compiled
def _encode(
    prefix: Bytes,
    rows: Longs,
    offset: int,
    kind: int,
    ts: Longs,
    keys: Bytes,
    key_spans: Longs,
    values: Bytes,
    value_spans: Longs,
    headers: Bytes,
    header_spans: Longs,
    block: Bytes,
    sums: Longs,
    low: Bytes,
    high: Bytes,
) -> int:
    base = block.ctypes.data
    position = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        key_length, value_length = key_spans[row, 1], value_spans[row, 1]
        key = keys.ctypes.data + key_spans[row, 0] if key_length >= 0 else 0
        value = values.ctypes.data + value_spans[row, 0] if value_length >= 0 else 0
        copy_bytes(base + position, prefix.ctypes.data, prefix.shape[0])
        position = put_long(block, position + prefix.shape[0], offset + i)
        position = put_long(block, position, ts[row])
        position = put_long(block, position, kind)
        position = put_nullable(block, base, position, key, key_length)
        position = put_nullable(block, base, position, value, value_length)
        copy_bytes(base + position, headers.ctypes.data + header_spans[row, 0], header_spans[row, 1])
        position += header_spans[row, 1]
        tally(sums, low, high, offset + i, ts[row], key, key_length, value_length)
    return position


class Rows:
    """A batch with the columns key and value (bytes), headers (text, as in records(…)) and ts (ms)."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._keys, self._key_spans = _spans(batch["key"])
        self._values, self._value_spans = _spans(batch["value"])
        self._headers, self._header_spans = _spans(_header_column(batch["headers"]))
        # -1 is Kafka's number for no timestamp. All others, also negative ones, are not changed.
        self._ts: Longs = batch["ts"].fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)

    def block(self, topic: str, partition: int, rows: Longs, offset: int) -> Block:
        """Encode the rows with the numbers `rows` as records of a partition, with offsets from `offset` on.

        Raises ValueError when there are no rows.
        """
        prefix: Bytes = np.frombuffer(record_prefix(topic, partition), np.uint8)
        spans = (self._key_spans, self._value_spans, self._header_spans)
        size = sum(int(np.maximum(part_spans[rows, 1], 0).sum()) for part_spans in spans)
        buffer: Bytes = np.empty(size + len(rows) * (len(prefix) + _ROOM), np.uint8)
        counts = Tally()
        end = _encode(
            prefix, rows, offset, _CREATE_TIME, self._ts, self._keys, self._key_spans, self._values,
            self._value_spans, self._headers, self._header_spans, buffer,
            counts.sums, counts.low, counts.high,
        )  # fmt: skip
        stats = counts.stats()
        if stats is None:
            raise ValueError("a block holds at least one record")
        return Block(buffer[:end], stats)


def _spans(column: Any) -> tuple[Bytes, Longs]:
    """Return a binary column's bytes, and int64[rows, 2] of each value's position and length (-1: null)."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), -1)
    content: Bytes = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    return content, np.column_stack((offsets[:-1], lengths)).astype(np.int64)


def _header_column(headers: Any) -> Any:
    """Encode a column of headers as records(…) has them: a binary column of Avro."""
    if pc.all(pc.equal(headers.fill_null("[]"), "[]")).as_py():
        return pa.repeat(pa.scalar(_NO_HEADERS, pa.binary()), len(headers))
    return pa.array([encode_headers(text) for text in headers.to_pylist()], pa.binary())


def encode_headers(text: str | None) -> bytes:
    """Encode headers as Avro from a JSON array of [name, value], as in records(…). None: no headers.

    Raises Refused for another text.
    """
    if text is None or text == "[]":
        return _NO_HEADERS
    try:
        pairs = [(_bytes(name), _bytes(value)) for name, value in json.loads(text)]
        if any(name is None for name, _ in pairs):
            raise ValueError("a header has no name")
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(
            f"These headers are no JSON array of [name, value]: {text[:200]} ({error}).",
            hint="Select headers as records(…) has them.",
        ) from None
    parts = [_long(len(pairs))]
    for name, value in pairs:
        parts += [_long(len(name or b"")), name or b""]
        parts += [b"\0"] if value is None else [b"\2", _long(len(value)), value]
    return b"".join([*parts, _NO_HEADERS]) if pairs else _NO_HEADERS


def _bytes(content: str | dict[str, str] | None) -> bytes | None:
    if content is None or isinstance(content, str):
        return None if content is None else content.encode()
    return bytes.fromhex(content["hex"])


@cache
def _long(value: int) -> bytes:
    block: Bytes = np.empty(10, np.uint8)
    return block[: put_long(block, 0, value)].tobytes()
