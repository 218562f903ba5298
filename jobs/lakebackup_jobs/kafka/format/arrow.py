"""Converts decoded blocks to Arrow record batches, for tables and for comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from lakebackup_jobs.kafka.format.records import (
    HEADER_COUNT,
    KEY,
    KEY_LENGTH,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    TOPIC_LENGTH,
    VALUE,
    VALUE_LENGTH,
    Block,
    Columns,
)
from lakebackup_jobs.kafka.format.schemas import TIMESTAMP_TYPES
from lakebackup_jobs.kafka.memory import Bytes, Longs, compiled

RECORD = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
        ),
    ]
)


@compiled
def _gather(block: Bytes, positions: Longs, ends: Longs, target: Bytes) -> None:
    start = 0
    for i in range(positions.shape[0]):
        end = ends[i]
        for j in range(end - start):
            target[start + j] = block[positions[i] + j]
        start = end


def binary(block: Bytes, positions: Longs, lengths: Longs) -> Any:
    """Return a pa.binary() array of the pieces of `block` at the positions `positions`; a length of -1 is
    null.

    A block is below 2 GiB, so 32-bit offsets are enough.
    """
    ends = np.cumsum(np.maximum(lengths, 0))
    data: Bytes = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    _gather(block, np.ascontiguousarray(positions), ends, data)
    offsets = np.zeros(len(positions) + 1, np.int32)
    offsets[1:] = ends
    valid = pa.array(lengths >= 0).buffers()[1] if (lengths < 0).any() else None
    return pa.Array.from_buffers(
        pa.binary(), len(positions), [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def keys(columns: Columns) -> Any:
    """Return the keys of some records, null or not, as a pa.binary() array."""
    return binary(columns.data, columns.rows[:, KEY], columns.rows[:, KEY_LENGTH])


def values(columns: Columns) -> Any:
    """Return the values of some records, null or not, as a pa.binary() array."""
    return binary(columns.data, columns.rows[:, VALUE], columns.rows[:, VALUE_LENGTH])


def as_text(array: Any, decode: Callable[[bytes], str | None]) -> Any:
    """Convert a binary array to text. If some values are not UTF-8, `decode` is called with each value."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if piece is None else decode(piece) for piece in array.to_pylist()], pa.string()
        )


def _replaced(piece: bytes) -> str:
    # Kafka does not check that a header's key is UTF-8, but a table's text must be.
    return piece.decode(errors="replace")


def to_arrow(columns: Columns) -> pa.RecordBatch:
    """Return the block's records in order, one row each, with the columns of RECORD.

    These are topic, partition, offset, timestamp (ms, -1: none), timestamp_type (NOT_AVAILABLE, CREATE_TIME
    or LOG_APPEND_TIME; always NOT_AVAILABLE in version 1 files), key, value and headers.
    """
    block, rows = columns.data, columns.rows
    headers = columns.headers()
    pairs = pa.StructArray.from_arrays(
        [
            as_text(binary(block, headers[:, 0], headers[:, 1]), _replaced),
            binary(block, headers[:, 2], headers[:, 3]),
        ],
        fields=list(RECORD.field("headers").type.value_type),
    )
    offsets = np.zeros(len(rows) + 1, np.int32)
    offsets[1:] = np.cumsum(rows[:, HEADER_COUNT])
    kinds = pa.DictionaryArray.from_arrays(rows[:, TIMESTAMP_TYPE].astype(np.int8), list(TIMESTAMP_TYPES))
    return pa.RecordBatch.from_arrays(
        [
            as_text(binary(block, rows[:, TOPIC], rows[:, TOPIC_LENGTH]), _replaced),
            pa.array(rows[:, PARTITION].astype(np.int32)),
            pa.array(np.ascontiguousarray(rows[:, OFFSET])),
            pa.array(np.ascontiguousarray(rows[:, TIMESTAMP])),
            kinds.cast(pa.string()),
            keys(columns),
            values(columns),
            pa.ListArray.from_arrays(pa.array(offsets), pairs, type=RECORD.field("headers").type),
        ],
        schema=RECORD,
    )


def records_of(block: Block, location: str) -> pa.RecordBatch:
    """Return the block's records in order: offset, timestamp (ms), key, value. `location` is for errors."""
    rows = block.columns(location).rows
    return pa.RecordBatch.from_pydict(
        {
            "offset": np.ascontiguousarray(rows[:, OFFSET]),
            "timestamp": np.ascontiguousarray(rows[:, TIMESTAMP]),
            "key": binary(block.data, rows[:, KEY], rows[:, KEY_LENGTH]),
            "value": binary(block.data, rows[:, VALUE], rows[:, VALUE_LENGTH]),
        }
    )
