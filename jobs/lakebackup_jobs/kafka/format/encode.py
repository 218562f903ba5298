"""Rows of Arrow columns as records in Avro's binary form: no Python object per record but for headers."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lakebackup.errors import Refused
from lakebackup_jobs.kafka.format.container import record_prefix
from lakebackup_jobs.kafka.format.records import Block, Tally, put_long, put_nullable, tally
from lakebackup_jobs.kafka.format.schemas import TIMESTAMP_TYPES
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled, copy_bytes

if TYPE_CHECKING:
    import pyarrow as pa

_CREATE_TIME = TIMESTAMP_TYPES.index("CREATE_TIME")
# Offset, timestamp, its type, and the branch and length of key and value at their longest.
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
    key_places: Longs,
    values: Bytes,
    value_places: Longs,
    headers: Bytes,
    header_places: Longs,
    out: Bytes,
    sums: Longs,
    low: Bytes,
    high: Bytes,
) -> int:
    base = out.ctypes.data
    at = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        key_length, value_length = key_places[row, 1], value_places[row, 1]
        key = keys.ctypes.data + key_places[row, 0] if key_length >= 0 else 0
        value = values.ctypes.data + value_places[row, 0] if value_length >= 0 else 0
        copy_bytes(base + at, prefix.ctypes.data, prefix.shape[0])
        at = put_long(out, at + prefix.shape[0], offset + i)
        at = put_long(out, at, ts[row])
        at = put_long(out, at, kind)
        at = put_nullable(out, base, at, key, key_length)
        at = put_nullable(out, base, at, value, value_length)
        copy_bytes(base + at, headers.ctypes.data + header_places[row, 0], header_places[row, 1])
        at += header_places[row, 1]
        tally(sums, low, high, offset + i, ts[row], key, key_length, value_length)
    return at


class Rows:
    """A batch of columns key and value (bytes), headers (text, as records(…) has them) and ts (ms)."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._keys, self._key_places = _places(batch["key"])
        self._values, self._value_places = _places(batch["value"])
        self._headers, self._header_places = _places(_encoded(batch["headers"]))
        # Kafka's number for no timestamp. All others, also negative ones, stay as they are.
        self._ts: Longs = batch["ts"].fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)

    def block(self, topic: str, partition: int, rows: Longs, offset: int) -> Block:
        """Some of the rows, by number, as records of a partition with offsets from `offset` on."""
        prefix: Bytes = np.frombuffer(record_prefix(topic, partition), np.uint8)
        places = (self._key_places, self._value_places, self._header_places)
        size = sum(int(np.maximum(place[rows, 1], 0).sum()) for place in places)
        out: Bytes = np.empty(size + len(rows) * (len(prefix) + _ROOM), np.uint8)
        counted = Tally()
        end = _encode(
            prefix, rows, offset, _CREATE_TIME, self._ts, self._keys, self._key_places, self._values,
            self._value_places, self._headers, self._header_places, out,
            counted.sums, counted.low, counted.high,
        )  # fmt: skip
        stats = counted.stats()
        if stats is None:
            raise ValueError("a block holds at least one record")
        return Block(out[:end], stats)


def _places(column: Any) -> tuple[Bytes, Longs]:
    """A binary column's bytes, and int64[rows, 2] of where each value begins and its length, -1: null."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), -1)
    content: Bytes = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    return content, np.column_stack((offsets[:-1], lengths)).astype(np.int64)


def _encoded(headers: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.all(pc.equal(headers.fill_null("[]"), "[]")).as_py():
        return pa.repeat(pa.scalar(_NO_HEADERS, pa.binary()), len(headers))
    return pa.array([encode_headers(text) for text in headers.to_pylist()], pa.binary())


def encode_headers(text: str | None) -> bytes:
    """Headers as records(…) shows them, a JSON array of [name, value], as Avro; None: there are none.

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
