"""Rows of a SELECT as records of a data file, read back by the reader of backups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakebackup.errors import Refused
from lakebackup_jobs.kafka.format.arrow import to_arrow
from lakebackup_jobs.kafka.format.encode import Rows, encode_headers

YEAR_10000 = 253_402_300_800_000
TEXTS = [None, "[]", '[["h", "1"], ["h", null], ["", ""]]', '[["é", {"hex": "ff00"}]]']
PAIRS = [
    [],
    [],
    [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "", "value": b""}],
    [{"key": "é", "value": b"\xff\x00"}],
]


def test_every_kind_of_row_is_read_back() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array([b"unused", None, b"", b"k", b"\xff\xfe"], pa.binary()),
            "value": pa.array([b"unused", b"v" * 300, None, b"", b"\x00\xff"], pa.binary()),
            "headers": pa.array(["[]", *TEXTS]),
            "ts": pa.array([0, None, -7, -1, YEAR_10000], pa.int64()),
        }
    ).slice(1)
    block = Rows(batch).block("orders", 3, np.array([0, 1, 2, 3]), 1 << 40)
    decoded = to_arrow(block.columns()).to_pylist()
    assert [(row["topic"], row["partition"], row["timestamp_type"]) for row in decoded] == [
        ("orders", 3, "CREATE_TIME")
    ] * 4
    assert [row["offset"] for row in decoded] == [(1 << 40) + i for i in range(4)]
    assert [row["timestamp"] for row in decoded] == [-1, -7, -1, YEAR_10000]
    assert [row["key"] for row in decoded] == [None, b"", b"k", b"\xff\xfe"]
    assert [row["value"] for row in decoded] == [b"v" * 300, None, b"", b"\x00\xff"]
    assert [row["headers"] for row in decoded] == PAIRS
    assert (block.stats.entries, block.stats.null_keys, block.stats.tombstones) == (4, 1, 1)
    third_row = Rows(batch).block("orders", 0, np.array([2]), 5)
    assert to_arrow(third_row.columns()).to_pylist()[0]["key"] == b"k"


@pytest.mark.parametrize("text", ["{}x", '["h"]', '[[null, "v"]]', '[["h", 1]]', '[["h", {"other": "00"}]]'])
def test_invalid_headers_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="no JSON array"):
        encode_headers(text)
