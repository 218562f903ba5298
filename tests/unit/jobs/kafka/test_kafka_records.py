"""Encoding and decoding of records and files: fastavro as judge, and damage that must never crash."""

from __future__ import annotations

import functools
import io
import json
import operator
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakebackup.errors import Damaged, UsageProblem
from lakebackup_jobs.kafka.format.arrow import to_arrow
from lakebackup_jobs.kafka.format.container import (
    CODECS,
    FileReader,
    FileWriter,
    compressor,
    decompress,
    record_start,
)
from lakebackup_jobs.kafka.format.records import (
    KEY_KEPT,
    Block,
    BlockStats,
    FileStats,
    decode_block,
    encode_record,
    select_records,
)
from lakebackup_jobs.kafka.format.schemas import (
    FORMAT_V1,
    FORMAT_V2,
    SCHEMA_V1,
    SCHEMA_V2,
    TIMESTAMP_TYPES,
    format_of,
)

longs = st.integers(-(2**63), 2**63 - 1)
nullable = st.none() | st.binary(max_size=300)
names = st.text(st.characters(codec="utf-8"), max_size=12)
v2_records = st.fixed_dictionaries(
    {
        "topic": st.just("t-é"),
        "partition": st.integers(0, 2**31 - 1),
        "offset": st.integers(0, 2**63 - 2),
        "timestamp": longs,
        "timestamp_type": st.sampled_from(TIMESTAMP_TYPES),
        "key": nullable,
        "value": nullable,
        "headers": st.lists(st.fixed_dictionaries({"key": names, "value": nullable}), max_size=4),
    }
)
v1_records = st.fixed_dictionaries(
    {
        "topic": st.just("t"),
        "partition": st.integers(0, 100),
        "offset": st.integers(0, 2**62),
        "timestamp": longs,
        "key": nullable,
        "value": st.binary(max_size=100),
        "headers": st.none() | st.dictionaries(names, st.binary(max_size=20), max_size=4),
    }
)
Row = dict[str, Any]
PLAIN: Row = {
    "topic": "t", "partition": 0, "offset": 0, "timestamp_type": "NOT_AVAILABLE", "key": None, "value": None,
    "headers": [],
}  # fmt: skip
PARSED = {
    FORMAT_V1: fastavro.parse_schema(json.loads(SCHEMA_V1)),
    FORMAT_V2: fastavro.parse_schema(json.loads(SCHEMA_V2)),
}


def encoded(rows: list[Row]) -> list[bytes]:
    return [
        encode_record(
            row["topic"],
            row["partition"],
            row["offset"],
            row["timestamp"],
            TIMESTAMP_TYPES.index(row["timestamp_type"]),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in rows
    ]


def stats_of(row: Row) -> BlockStats:
    """The figures of one record."""
    key, ts, offset = row["key"], row["timestamp"], row["offset"]
    stored_key = None if key is None else key[:KEY_KEPT]
    return BlockStats(
        1, ts, ts, offset, offset + 1, int(key is None), int(row["value"] is None), stored_key, stored_key
    )


def block_of(rows: list[Row]) -> Block:
    total = functools.reduce(operator.add, map(stats_of, rows))
    return Block(np.frombuffer(b"".join(encoded(rows)), np.uint8), total)


def file_of(rows: list[Row], codec: str) -> tuple[bytes, FileStats]:
    sink = io.BytesIO()
    writer = FileWriter(sink, codec=codec)
    for i in range(0, len(rows), 3):
        writer.write_block(block_of(rows[i : i + 3]))
    return sink.getvalue(), writer.finish()


def by_fastavro(fmt: str, rows: list[Row]) -> bytes:
    stream = io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(stream, PARSED[fmt], row)
    return stream.getvalue()


@given(st.lists(v2_records, min_size=1, max_size=12))
def test_the_bytes_are_those_of_fastavro(rows: list[Row]) -> None:
    assert b"".join(encoded(rows)) == by_fastavro(FORMAT_V2, rows)


@given(v1_records | v2_records)
def test_a_record_begins_as_with_fastavro(row: Row) -> None:
    fmt = FORMAT_V2 if "timestamp_type" in row else FORMAT_V1
    kind = TIMESTAMP_TYPES.index(row.get("timestamp_type", "NOT_AVAILABLE"))
    fields = row["topic"], row["partition"], row["offset"], row["timestamp"]
    record = by_fastavro(fmt, [row])
    start = record_start(fmt, *fields, kind, row["key"], row["value"])
    assert record.startswith(start)
    # The headers follow it.
    without_headers = by_fastavro(fmt, [{**row, "headers": [] if fmt == FORMAT_V2 else None}])
    assert start == without_headers[:-1]


@given(st.lists(v2_records, min_size=1, max_size=12), st.sampled_from(CODECS))
def test_round_trip_of_files(rows: list[Row], codec: str) -> None:
    file, figures = file_of(rows, codec)
    assert list(fastavro.reader(io.BytesIO(file))) == rows
    read = [row for columns in FileReader(io.BytesIO(file), "f") for row in to_arrow(columns).to_pylist()]
    assert read == rows
    assert figures.entries == len(rows)
    assert figures.bytes == len(file)


def as_version_2(row: Row) -> Row:
    """A record of format version 1 in the fields of version 2."""
    headers = [{"key": k, "value": v} for k, v in (row["headers"] or {}).items()]
    return {**row, "timestamp_type": "NOT_AVAILABLE", "headers": headers}


@given(
    st.lists(v2_records, min_size=1, max_size=12).map(lambda rows: (FORMAT_V2, rows, rows))
    | st.lists(v1_records, min_size=1, max_size=12).map(
        lambda rows: (FORMAT_V1, rows, [*map(as_version_2, rows)])
    ),
    st.sampled_from(CODECS),
    st.integers(1, 5000),
)
def test_files_of_fastavro(drawn: tuple[str, list[Row], list[Row]], codec: str, interval: int) -> None:
    fmt, rows, expected = drawn
    file = io.BytesIO()
    fastavro.writer(file, PARSED[fmt], rows, codec=codec, sync_interval=interval)
    file.seek(0)
    reader = FileReader(file, "f")
    assert reader.fmt == fmt
    assert [row for columns in reader for row in to_arrow(columns).to_pylist()] == expected


@given(
    st.lists(v2_records, min_size=1, max_size=20), st.none() | longs, st.none() | longs, st.integers(0, 2**62)
)
@example([{**PLAIN, "timestamp": ts} for ts in (0, -(2**63), 2**63 - 1)], -(2**63), None, 0)
@example([{**PLAIN, "timestamp": ts} for ts in (0, -(2**63), 2**63 - 1)], 2**63 - 1, None, 0)
def test_filter_and_figures(
    rows: list[Row], after_ts: int | None, until_ts: int | None, first_offset: int
) -> None:
    columns = decode_block(b"".join(encoded(rows)), len(rows), FORMAT_V2)
    expected = [
        row
        for row in rows
        if (after_ts is None or row["timestamp"] > after_ts)
        and (until_ts is None or row["timestamp"] <= until_ts)
        and row["offset"] >= first_offset
    ]
    packed = select_records(columns, after_ts, until_ts, first_offset).packed()
    if not expected:
        assert packed is None
        return
    assert packed.data.tobytes() == b"".join(encoded(expected))
    assert (
        packed.stats
        == select_records(columns, after_ts, until_ts, first_offset).stats()
        == block_of(expected).stats
    )


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=8), st.lists(st.just(b"\xff" * 70), max_size=1))
def test_key_bounds_hold(keys: list[bytes], extra_keys: list[bytes]) -> None:
    keys += extra_keys
    rows = [{"offset": 0, "timestamp": 0, "key": key, "value": b""} for key in keys]
    stats = functools.reduce(operator.add, map(stats_of, rows))
    assert all(stats.start_key <= key.hex() for key in keys)
    assert len(stats.start_key) <= 128
    if stats.end_key is None:
        assert max(keys)[:64] == b"\xff" * 64
        assert len(max(keys)) > 64
    else:
        assert all(key.hex() <= stats.end_key for key in keys)
        assert len(stats.end_key) <= 128


@given(st.binary(max_size=400), st.integers(0, 60), st.sampled_from([FORMAT_V1, FORMAT_V2]))
def test_noise_is_refused_or_fits(noise: bytes, count: int, fmt: str) -> None:
    try:
        columns = decode_block(noise, count, fmt)
    except Damaged:
        return
    assert len(columns.rows) == count
    assert columns.rows[:, 13].max(initial=0) <= len(noise)
    assert columns.headers().max(initial=0) <= len(noise)


@settings(max_examples=3 * settings.default.max_examples)
@given(
    st.lists(v2_records, min_size=1, max_size=8),
    st.sampled_from(CODECS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4),
    st.integers(0, 10**6),
)
def test_damaged_files_are_damaged_or_another_file(
    rows: list[Row], codec: str, flips: list[tuple[int, int]], cut: int
) -> None:
    file = bytearray(file_of(rows, codec)[0])
    for position, mask in flips:
        file[position % len(file)] ^= mask
    del file[len(file) - cut % len(file) if cut % 2 else len(file) :]
    message = "the-file"
    try:
        for columns in FileReader(io.BytesIO(bytes(file)), "the-file"):
            to_arrow(columns).validate(full=True)
            select_records(columns, None, 0).packed()
    except Damaged as damage:
        message = damage.message
    assert "the-file" in message


def test_torn_files_say_where() -> None:
    row = {"topic": "t", "partition": 0, "offset": 0, "timestamp": 0, "timestamp_type": "CREATE_TIME"}
    file, _ = file_of([{**row, "key": b"k", "value": b"v" * 100, "headers": []}], "null")
    with pytest.raises(Damaged, match=rf"^f: ends at byte {len(file) - 1}, 1 bytes too early"):
        list(FileReader(io.BytesIO(file[:-1]), "f"))
    with pytest.raises(Damaged, match="the mark between blocks"):
        list(FileReader(io.BytesIO(file[:-1] + bytes([file[-1] ^ 1])), "f"))
    with pytest.raises(Damaged, match="not an Avro data file"):
        FileReader(io.BytesIO(b"PAR1" + file), "f")


def test_declared_sizes_are_not_believed() -> None:
    row = {"topic": "t", "partition": 0, "offset": 0, "timestamp": 0, "timestamp_type": "CREATE_TIME"}
    file, _ = file_of([{**row, "key": b"k", "value": b"v", "headers": []}], "null")
    header = file[: file.index(file[-16:]) + 16]
    with pytest.raises(Damaged, match=f"byte {len(header)}: 4611686018427387904 records cannot be in"):
        list(
            FileReader(
                io.BytesIO(header + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x02a" + file[-16:]), "f"
            )
        )
    with pytest.raises(Damaged, match=r"a size of \d+ cannot be"):
        list(FileReader(io.BytesIO(header + b"\x02\xfe\xff\xff\xff\xff\xff\x01"), "f"))
    for codec in ("deflate", "zstandard", "snappy"):
        bomb = compressor(codec)(np.zeros(1_000_000, np.uint8))
        with pytest.raises(Damaged, match=codec):
            decompress(codec, bomb, limit=1000)


def test_other_schemas_and_codecs_are_refused() -> None:
    with pytest.raises(Damaged, match="neither version"):
        format_of('{"type":"record","name":"x","fields":[{"name":"a","type":"int"}]}', "f")
    with pytest.raises(Damaged, match="cannot be read"):
        format_of(b"\xff{", "f")
    with pytest.raises(UsageProblem, match="lz4"):
        compressor("lz4")
    with pytest.raises(UsageProblem, match="levels -5 to 22"):
        compressor("zstandard", 50)


def test_schemas_as_java_writes_them() -> None:
    text = SCHEMA_V1.replace('"string"', '{"type":"string","avro.java.string":"String"}')
    assert format_of(text, "f") == FORMAT_V1


def test_header_keys_that_are_not_text_can_still_be_shown() -> None:
    record = encode_record("t", 0, 0, 0, 1, None, None, [("abc", None)])
    columns = decode_block(record.replace(b"abc", b"a\xffc"), 1, FORMAT_V2)
    assert to_arrow(columns).to_pylist()[0]["headers"] == [{"key": "a\ufffdc", "value": None}]
