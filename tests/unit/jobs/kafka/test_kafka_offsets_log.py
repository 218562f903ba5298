"""Every version of the records of __consumer_offsets, and bytes that are none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup_jobs.kafka.format.offsets_log import decode

CASES = yaml.safe_load((Path(__file__).parent / "offsets_log.yml").read_text(encoding="utf-8"))
OFFSET_KEY = bytes.fromhex("00010003672d3100066f726465727300000007")
RECORDS = [(bytes.fromhex(c["key"]), bytes.fromhex(c["value"])) for c in CASES if "value" in c]
IN_THE_ROW = {
    "backup_id": "b", "source": "s", "log_epoch": "e", "log_region": "0", "log_position": 0, "log_ts": 0,
}  # fmt: skip


def assert_fits(row: dict[str, Any]) -> None:
    """The table `group_commits` takes the row."""
    assert row.keys() <= set(ARROW_SCHEMAS["group_commits"].names)
    pa.RecordBatch.from_pylist([IN_THE_ROW | row], ARROW_SCHEMAS["group_commits"])
    assert isinstance(row["kind"], str)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_recorded_record(case: dict[str, Any]) -> None:
    value = bytes.fromhex(case["value"]) if "value" in case else None
    row = decode(bytes.fromhex(case["key"]), value)
    assert_fits(row)
    present = {column: cell for column, cell in row.items() if cell is not None}
    if "detail" in present:
        present["detail"] = json.loads(present["detail"])
    assert present == case["row"]


@pytest.mark.parametrize(
    ("key", "version", "problem"),
    [
        (None, None, "key: there is none"),
        (b"\0", None, "key: it ends at byte 1, 2 bytes are expected at 0"),
        (b"\0\1\0\3ab", 1, "key: it ends at byte 6, 3 bytes are expected at 4"),
        (b"\0\2\xff\xff", 2, "key: a name is missing"),
        (b"\0\2\0\1\xff", 2, "key: a text is not UTF-8"),
        (b"\0\2\0\1gx", 2, "key: 1 bytes are left over"),
    ],
)
def test_an_invalid_key_is_reported(key: bytes | None, version: int | None, problem: str) -> None:
    assert decode(key, b"") == {"kind": "unknown", "key_version": version, "problem": problem}


def test_a_key_of_another_kind_is_no_problem() -> None:
    assert decode(b"\x7f\xff", b"") == {"kind": "unknown", "key_version": 32767}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "value: it ends at byte 0, 2 bytes are expected at 0"),
        ("0005", "value: version 5 of an offset is not known"),
        ("ffff", "value: version -1 of an offset is not known"),
        ("000200000000000000010000000000000000000900", "value: 1 bytes are left over"),
        ("00040000000000000001ffffffffffffffffff01", "value: a number is too long"),
    ],
)
def test_an_invalid_value_is_reported(value: str, problem: str) -> None:
    row = decode(OFFSET_KEY, bytes.fromhex(value))
    assert (row["kind"], row["group_id"], row["scope"], row["region"]) == ("offset", "g-1", "orders", "7")
    assert row["problem"] == problem
    assert "position" not in row


_KEYS = (
    st.none()
    | st.binary(max_size=60)
    | st.builds(
        lambda version, content: version.to_bytes(2) + content, st.integers(0, 20), st.binary(max_size=40)
    )
)


@given(key=_KEYS, value=st.none() | st.binary(max_size=200))
def test_random_bytes_make_a_row(key: bytes | None, value: bytes | None) -> None:
    assert_fits(decode(key, value))


@given(st.sampled_from(RECORDS), st.data())
def test_a_truncated_value_is_reported(record: tuple[bytes, bytes], data: st.DataObject) -> None:
    key, value = record
    complete_row = decode(key, value)
    row = decode(key, value[: data.draw(st.integers(0, len(value) - 1))])
    assert_fits(row)
    assert complete_row["kind"] == "unknown" or row["problem"].startswith("value: ")


@given(st.sampled_from(RECORDS), st.data())
def test_changed_bytes_make_a_row(record: tuple[bytes, bytes], data: st.DataObject) -> None:
    key, value = (bytearray(part) for part in record)
    for part in (key, value):
        for position in data.draw(st.lists(st.integers(0, len(part) - 1), max_size=3)):
            part[position] = data.draw(st.integers(0, 255))
    assert_fits(decode(bytes(key), bytes(value)))
