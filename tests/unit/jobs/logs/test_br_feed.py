"""Events of the key-value change feed, as fastavro and our decoder read them, and the checkpoint."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support import change_load
from tests.support.change_feed import batch, encode, write_value

from lakebackup.errors import Damaged
from lakebackup.formats.logs import events
from lakebackup.formats.logs.br_event import FAMILIES, KINDS, SCHEMA, VERSION
from lakebackup_jobs.logs.feeds import Range
from lakebackup_jobs.logs.feeds.br import BrDecoder, BrFeed

DECODER = BrDecoder(Range("feed", 3, "0" * 32, 0, 10))
PARSED = fastavro.parse_schema(SCHEMA)
LONGS = st.integers(-(2**63), 2**63 - 1)
TS = st.integers(0, 2**63 - 1)
#: Fields of an event that puts key `k` of table 7 in the column family `write`.
WRITE: dict[str, Any] = {"table_id": 7, "cf": "write", "key": b"k", "start_ts": 5, "commit_ts": 9}
FULL: dict[str, Any] = dict.fromkeys(events.captured_schema().names)


def decoded(*values: bytes) -> Any:
    return DECODER.decode(batch(values, 40))


def decoded_record(kind: str = "put", **event: Any) -> dict[str, Any]:
    return decoded(encode(kind, 2, "1", **event)).records.to_pylist()[0]


# --- the format


@given(
    st.sampled_from(KINDS), LONGS, st.text(), LONGS, st.none() | st.sampled_from(FAMILIES),
    st.none() | st.binary(), st.none() | st.binary(), st.tuples(*[st.none() | LONGS] * 3), st.lists(LONGS),
)  # fmt: skip
def test_encoded_events_are_those_of_avro(
    kind: str, region: int, store: str, table: int, cf: str | None, key: bytes | None, value: bytes | None,
    ts: tuple[int | None, int | None, int | None], successors: list[int],
) -> None:  # fmt: skip
    event = {
        "table_id": table, "cf": cf, "key": key, "value": value, "start_ts": ts[0], "commit_ts": ts[1],
        "resolved_ts": ts[2], "successors": successors,
    }  # fmt: skip
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, PARSED, {"kind": kind, "region": region, "store": store, **event})
    assert encode(kind, region, store, **event) == bytes([VERSION]) + stream.getvalue()


def test_the_schema_in_the_docs_is_the_one_that_is_read() -> None:
    text = (Path(__file__).parents[4] / "docs" / "change-logs-feed.md").read_text()
    block = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert json.loads(block[1]) == SCHEMA


def test_a_producer_may_use_fastavro_and_leave_out_what_has_a_default() -> None:
    stream = io.BytesIO(bytes([VERSION]))
    stream.seek(1)
    event = {"kind": "put", "region": 2, "store": "1", "table_id": 7, "cf": "default", "key": b"k"}
    fastavro.schemaless_writer(stream, PARSED, event | {"value": b"v", "start_ts": 5})
    assert decoded(stream.getvalue()).records.to_pylist()[0]["value"] == b"v"


# --- events as records


@pytest.mark.parametrize(
    ("kind", "event", "expected"),
    [
        ("put", {"cf": "default", "value": b"v", "start_ts": 6}, {"value": b"v", "start_ts": 6}),
        ("put", {"cf": "default", "value": b"", "start_ts": 0}, {"value": b"", "start_ts": 0}),
        ("delete", {"cf": "default", "start_ts": 6}, {"op": "delete", "start_ts": 6}),
        ("put", WRITE | {"value": write_value("P", 5)}, {"type": "P"}),
        ("put", WRITE | {"value": write_value("P", 5), "start_ts": None}, {"type": "P"}),
        ("put", WRITE | {"value": write_value("P", 5, b"own")}, {"type": "P", "value": b"own"}),
        ("put", WRITE | {"value": write_value("P", 5, b"")}, {"type": "P", "value": b""}),
        ("put", WRITE | {"value": write_value("D", 5)}, {"type": "D"}),
        ("put", WRITE | {"value": write_value("L", 5)}, {"type": "L"}),
        ("put", WRITE | {"value": write_value("R", 9), "start_ts": None}, {"type": "R", "start_ts": 9}),
        ("put", WRITE | {"value": write_value("T", 5), "key": b""}, {"type": "T", "key": b""}),
        ("delete", WRITE | {"start_ts": None, "value": b"x"}, {"op": "delete", "start_ts": 0}),
    ],
)
def test_a_change_is_decoded(kind: str, event: dict[str, Any], expected: dict[str, Any]) -> None:
    if event["cf"] == "write":
        expected = {"start_ts": 5, "commit_ts": 9} | expected
    expected["cf"] = event["cf"]
    position = {"store": "1", "region": 2, "table_id": 7, "offset": 40}
    common = {**position, "op": "put", "key": b"k", "seq": 0, "sub": 0}
    assert decoded_record(kind, **{"table_id": 7, "key": b"k"} | event) == FULL | common | expected


def test_marks_are_decoded() -> None:
    marks = decoded(
        encode("resolved", 2, "store-ä", resolved_ts=7),
        encode("closed", 2, "1", resolved_ts=2**62, successors=[3, 2**40]),
        encode("closed", 3, "1", resolved_ts=8),
    ).marks
    assert marks.schema == events.marks_schema()
    rows = [
        (m["store"], m["region"], m["resolved_ts"], m["closed"], m["successors"]) for m in marks.to_pylist()
    ]
    assert rows == [
        ("store-ä", 2, 7, False, []),
        ("1", 2, 2**62, True, [3, 2**40]),
        ("1", 3, 8, True, []),
    ]
    assert marks["offset"].to_pylist() == [40, 41, 42]


def test_locks_and_meta_keys_that_name_nothing_are_left_out() -> None:
    output = decoded(
        encode("put", 2, "1", table_id=7, cf="lock", key=b"k", value=b"P"),
        encode("delete", 2, "1", table_id=7, cf="lock", key=b"k"),
        encode("put", 2, "1", cf="default", key=b"mDB1_TID7", value=b"5", start_ts=5),
        encode("put", 2, "1", cf="default", key=b"mDB1_Table7", value=b"{}", start_ts=5),
        encode("put", 2, "1", table_id=7, cf="default", key=b"mDB1_TID7", value=b"5", start_ts=5),
    )
    assert [(row["table_id"], row["key"]) for row in output.records.to_pylist()] == [
        (0, b"mDB1_Table7"),
        (7, b"mDB1_TID7"),
    ]


def test_empty_and_sliced_batches_are_decoded() -> None:
    values = [encode("resolved", 2, "1", resolved_ts=n) for n in range(5)]
    assert DECODER.decode(batch([])).marks.num_rows == 0
    part = batch(values).slice(2, 2)
    assert DECODER.decode(part).marks["resolved_ts"].to_pylist() == [2, 3]
    large = part.set_column(3, "value", part["value"].cast(pa.large_binary()))
    assert DECODER.decode(large).marks["offset"].to_pylist() == [2, 3]
    assert DECODER.finish() is None


def test_the_load_of_benchmarks_is_a_valid_feed() -> None:
    values = [value for _, value in change_load.load_events(1_000, 2, tables=3, value_bytes=10)]
    output = decoded(*values)
    assert output.records.num_rows == pytest.approx(1_000, rel=0.1)
    tables = {row["table_id"] for row in output.records.to_pylist()}
    assert tables == {0, *range(change_load.TABLE, change_load.TABLE + 3)}
    rows = [row | {"region": str(row["region"])} for row in output.marks.to_pylist()]
    none: Any = None
    checkpoint_ts = BrFeed(("feed",)).checkpoint(none, {}, iter(()), iter(rows), None)
    assert checkpoint_ts == max(row["resolved_ts"] for row in rows)
    assert checkpoint_ts >= max(output.records["commit_ts"].drop_null().to_pylist())


# --- invalid events


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "no value"),
        (b"", "first byte is not 1"),
        (b"\x00\x00\x00\x00\x01", "first byte is not 1"),
        (encode("resolved", 2, "1", resolved_ts=1)[:-1], "not one event"),
        (encode("resolved", 2, "1", resolved_ts=1) + b"\0", "not one event"),
        (bytes([VERSION, 8]), "not one event"),
        (bytes([VERSION, 0, 0]) + b"\xff" * 12, "not one event"),
        (encode("resolved", -2, "1", resolved_ts=1), "negative region"),
        (encode("put", 2, "1", **WRITE | {"table_id": -1, "value": write_value("P", 5)}), "negative"),
        (encode("resolved", 2, "1"), "needs a resolved_ts"),
        (encode("closed", 2, "1", resolved_ts=-1), "needs a resolved_ts"),
        (encode("resolved", 2, "", resolved_ts=1), "name of a store"),
        (encode("resolved", 2, "x" * 201, resolved_ts=1), "name of a store"),
        (encode("resolved", 2, "x", resolved_ts=1).replace(b"\x02x", b"\x02\xff"), "name of a store"),
        (encode("put", 2, "1", table_id=7, key=b"k", start_ts=1), "column family"),
        (encode("put", 2, "1", table_id=7, cf="default", value=b"", start_ts=1), "column family and a key"),
        (encode("put", 2, "1", table_id=7, cf="default", key=b"k", start_ts=1), "default` needs a value"),
        (encode("put", 2, "1", table_id=7, cf="default", key=b"k", value=b""), "needs a start_ts"),
        (encode("delete", 2, "1", table_id=7, cf="write", key=b"k"), "a commit_ts"),
        (encode("put", 2, "1", cf="default", key=b"t1", value=b"", start_ts=1), "begin with `m`"),
        (encode("put", 2, "1", cf="default", key=b"", value=b"", start_ts=1), "begin with `m`"),
        *(
            (encode("put", 2, "1", **WRITE | {"value": bad}), message)
            for bad, message in (
                (None, "a type"),
                (write_value("P", 5)[:8], "a type"),
                (write_value("X", 5), "a type"),
                (write_value("P", 5) + b"w", "a type"),
                (write_value("D", 5, b"x"), "a type"),
                (write_value("P", 6), "another one"),
                (b"P" + b"\xff" * 8, "another one"),
            )
        ),
        (encode("put", 2, "1", **WRITE | {"value": write_value("P", 10), "start_ts": 10}), "later than"),
    ],
)
def test_an_invalid_event_is_named_with_its_position(value: bytes | None, message: str) -> None:
    good = encode("resolved", 2, "1", resolved_ts=1)
    with pytest.raises(Damaged, match="topic feed, partition 3, offset 41") as problem:
        decoded(good, value, good)  # type: ignore[arg-type]
    assert message in problem.value.message


KEYS = st.binary(max_size=9)
DEFAULT: dict[str, Any] = {"table_id": 7, "cf": "default"}
EVENTS = st.one_of(
    st.builds(
        lambda key, value, ts: encode("put", 2, "1", **DEFAULT, key=key, value=value, start_ts=ts),
        KEYS, KEYS, TS,
    ),
    st.builds(
        lambda key, value: encode("put", 2, "1", **WRITE | {"key": key, "value": value}),
        KEYS,
        st.builds(write_value, st.sampled_from("DLRT"), st.just(5))
        | st.builds(write_value, st.just("P"), st.just(5), st.none() | KEYS),
    ),
    st.builds(
        lambda ts, ids: encode("closed", 2, "1", resolved_ts=ts, successors=ids), TS, st.lists(TS, max_size=3)
    ),
)  # fmt: skip


def is_left_out(event: dict[str, Any]) -> bool:
    """Whether the event is a lock, or a meta key that names nothing."""
    match = re.fullmatch(b"mDB[0-9]{1,18}(_Table[0-9]{1,18})?", event["key"] or b"")
    other_meta = event["table_id"] == 0 and not match
    return event["kind"] in ("put", "delete") and (event["cf"] == "lock" or other_meta)


@settings(max_examples=3 * settings.default.max_examples)
@given(st.lists(EVENTS, min_size=1, max_size=4), st.data())
@example([encode("closed", 2, "1", resolved_ts=1, successors=[3])], None)
def test_damaged_bytes_are_reported_or_read_as_avro_says(values: list[bytes], data: Any) -> None:
    index = len(values) - 1
    if data is not None:
        raw = bytearray(values[index])
        position = data.draw(st.integers(0, len(raw) - 1))
        if data.draw(st.booleans()):
            raw[position] = data.draw(st.integers(0, 255))
        else:
            del raw[position]
        values[index] = bytes(raw)
    try:
        output = decoded(*values)
    except Damaged:
        return
    sent_events: list[Any] = [fastavro.schemaless_reader(io.BytesIO(raw[1:]), PARSED, None) for raw in values]
    assert output.records.num_rows + output.marks.num_rows == sum(
        not is_left_out(event) for event in sent_events
    )
    event = sent_events[index]
    if event["kind"] in ("resolved", "closed"):
        mark = output.marks.to_pylist()[-1]
        assert [mark[name] for name in ("region", "store", "resolved_ts", "successors")] == [
            event[name] for name in ("region", "store", "resolved_ts", "successors")
        ]
    elif event["cf"] != "lock" and event["table_id"]:
        row = output.records.to_pylist()[-1]
        names = ("region", "store", "table_id", "cf", "key")
        assert [row[name] for name in names] == [event[name] for name in names]
        if event["cf"] == "default":
            assert (row["start_ts"], row["commit_ts"]) == (event["start_ts"], None)


# --- the checkpoint and the topics


def checkpoint(*regions: tuple[int, int, list[int] | None], previous_ts: int | None = None) -> int | None:
    rows = [
        {"region": str(region), "store": "1", "resolved_ts": ts, "closed": successors is not None}
        | {"successors": successors}
        for region, ts, successors in regions
    ]
    none: Any = None
    return BrFeed(("feed",)).checkpoint(none, {}, iter(()), iter(rows), previous_ts)


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        ([], None),
        # Nothing says which regions there are, or one of them never sent a mark.
        ([(1, 10, None)], None),
        ([(0, 0, [1, 2]), (1, 10, None)], None),
        ([(0, 0, [1, 2]), (1, 10, None), (2, 8, None)], 8),
        # A closed region holds the others back until its successors send marks.
        ([(0, 0, [1]), (1, 10, [2, 3]), (2, 20, None)], 10),
        ([(0, 0, [1]), (1, 10, [2, 3]), (2, 20, None), (3, 30, None)], 20),
        ([(0, 0, [1]), (1, 10, [2]), (2, 20, [3]), (3, 30, None)], 30),
        # A region that nobody listed counts as well.
        ([(0, 0, [1]), (1, 10, None), (7, 4, None)], 4),
        ([(0, 0, [1]), (1, 10, [])], None),
        ([(0, 0, [1, 2]), (1, 10, None), (2, 0, None)], None),
    ],
)
def test_the_checkpoint(regions: list[tuple[int, int, list[int] | None]], expected: int | None) -> None:
    assert checkpoint(*regions) == expected
    for previous_ts in (3, 12):  # it never goes back
        assert checkpoint(*regions, previous_ts=previous_ts) == max(previous_ts, expected or 0)


def test_topics_by_name_and_expression() -> None:
    names = ["__internal", "kv-a", "kv-b", "other", "kv"]
    assert BrFeed(("kv-.*", "other")).topics(names) == ["kv-a", "kv-b", "other"]
    assert BrFeed((".*",)).topics(names) == ["kv", "kv-a", "kv-b", "other"]
    assert BrFeed(("__internal",)).topics(names) == ["__internal"]
