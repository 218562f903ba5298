"""Values with a schema id: what fastavro writes is decoded as JSON; garbage is reported, never raised."""

from __future__ import annotations

import base64
import io
import json
import pickle
from fractions import Fraction
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.rules.schema_ids import Meaning, Schema, SchemaIds, Space, schema_ids
from lakebackup_jobs.kafka.format.records import VALUE, VALUE_LENGTH, WIDTH, Columns
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.kafka.format.used_ids import used_ids
from lakebackup_jobs.kafka.format.values import MOST_BYTES, Decoder

NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "long"}, {"name": "next", "type": ["null", "Node"]}],
}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "buyer", "type": ["null", "string"], "default": "no null, as some registries let pass"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "photo", "type": "bytes"},
        {"name": "flag", "type": "boolean"},
    ],
}


TWO_BYTES = {"type": "fixed", "name": "F", "size": 2}


def avro(schema: Any) -> Schema:
    return Schema("AVRO", json.dumps(schema))


def framed(payload: bytes, number: int = 7) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return framed(stream.getvalue())


def decoder_of(schema: Schema) -> Decoder:
    """A decoder for which the id 7 means a schema, and no other id means anything."""
    return Decoder(SchemaIds({7: [Meaning(Space("_schemas", "e1", "."), schema, (("s", 1),), "")]}))


def decoded(schema: Schema, data: bytes) -> tuple[str | None, str | None]:
    return decoder_of(schema).decode(data, "orders", "value")


def long(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", number)
    return stream.getvalue()


def logical(base: Any, name: str, **properties: Any) -> Schema:
    kind = base if isinstance(base, dict) else {"type": base}
    return avro({**kind, "logicalType": name, **properties})


def test_a_record_is_an_object_in_the_schemas_order() -> None:
    value = {
        "id": 5, "buyer": "Zoë \"Z\"", "lines": ["a", ""], "more": {"x": 0.5}, "state": "PAID",
        "photo": b"\0\xff", "flag": True,
    }  # fmt: skip
    writable = {**ORDER, "fields": [{**f, "default": None} if "default" in f else f for f in ORDER["fields"]]}
    text, problem = decoded(avro(ORDER), encoded(writable, value))
    assert problem is None
    assert text == (
        '{"id":5,"buyer":"Zoë \\"Z\\"","lines":["a",""],"more":{"x":0.5},'
        '"state":"PAID","photo":"AP8=","flag":true}'
    )


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        (avro("string"), b"\x04ab", '"ab"'),
        (avro(["null", "long"]), b"\0", "null"),
        (avro("double"), b"\0\0\0\0\0\0\xf8\x7f", '"NaN"'),
        (avro({"type": "array", "items": "float"}), b"\x02\0\0\x80\xff\0", '["-Infinity"]'),
        (avro({"type": "fixed", "name": "F", "size": 2}), b"ab", '"YWI="'),
        (logical("bytes", "decimal", precision=4, scale=2), b"\x04\xff\x7f", '"-1.29"'),
        # More digits than the precision allows: fastavro alone would round them away.
        (logical("bytes", "decimal", precision=2, scale=0), b"\x08\x49\x96\x02\xd2", '"1234567890"'),
        (logical("bytes", "decimal", precision=2, scale=3), b"\x02\x05", '"0.005"'),
        (logical(TWO_BYTES, "decimal", precision=4, scale=1), b"\0\x0b", '"1.1"'),
        (logical("long", "timestamp-millis"), long(1_700_000_000_123), '"2023-11-14T22:13:20.123Z"'),
        (logical("long", "timestamp-millis"), long(-1), '"1969-12-31T23:59:59.999Z"'),
        (logical("long", "timestamp-micros"), long(1), '"1970-01-01T00:00:00.000001Z"'),
        (logical("long", "timestamp-nanos"), long(1), '"1970-01-01T00:00:00.000000001Z"'),
        (logical("long", "timestamp-millis"), long(2**63 - 1), "9223372036854775807"),
        (logical("long", "local-timestamp-millis"), long(-62_135_596_800_000), '"0001-01-01T00:00:00.000"'),
        (logical("int", "date"), long(19_000), '"2022-01-08"'),
        (logical("int", "date"), long(2**31 - 1), "2147483647"),
        (logical("int", "time-millis"), long(45_296_007), '"12:34:56.007"'),
        (logical("long", "time-micros"), long(86_400_000_000), "86400000000"),
        (logical("string", "uuid"), b"\x02x", '"x"'),
        (logical({"type": "fixed", "name": "U", "size": 16}, "uuid"), bytes(16), f'"{UUID(int=0)}"'),
        (logical("long", "of-another-make"), long(3), "3"),
        (Schema("JSON", "{}"), b' {"a": 1.10} ', '{"a": 1.10}'),
    ],
)  # fmt: skip
def test_each_kind_of_value(schema: Schema, payload: bytes, expected: str) -> None:
    assert decoded(schema, framed(payload)) == (expected, None)


@pytest.mark.parametrize(
    ("schema", "payload", "message"),
    [
        (avro("string"), b"\x0aab", "too early"),
        (avro("string"), b"\x02ab", "1 bytes are left over"),
        (avro("string"), b"\x02\xff", "UnicodeDecodeError"),
        (avro(["null", "long"]), b"\x08", "IndexError"),
        (avro({"type": "array", "items": "boolean"}), long(2**62), "too early"),
        (avro({"type": "array", "items": "null"}), long(2**62), "take no bytes"),
        (avro({"type": "no type"}), b"", "cannot be used"),
        (avro({"type": "array", "items": "shop.Missing"}), b"\0", "shop.Missing"),
        (Schema("AVRO", "{"), b"", "cannot be used"),
        (Schema("AVRO", "[" * 100_000), b"", "cannot be used"),
        (Schema("PROTOBUF", 'syntax = "proto3";'), b"\0", "PROTOBUF, which is not decoded"),
        (Schema("JSON", "{}"), b"{", "JSONDecodeError"),
        (Schema("JSON", "{}"), b"NaN", "NaN is no JSON"),
        (Schema("JSON", "{}"), b"[" * 1_000_000, "RecursionError"),
        (Schema("AVRO", '"long"', problem="it has two meanings"), b"\0", "two meanings"),
        (avro("bytes"), bytes(MOST_BYTES), "no more than"),
        # A chain of records so long that compiled code would exhaust its stack.
        (avro(NODE), b"\x02\x02" * 1_000_000, "RecursionError"),
    ],
)
def test_values_that_cannot_be_decoded_are_reported(schema: Schema, payload: bytes, message: str) -> None:
    text, problem = decoded(schema, framed(payload))
    assert text is None
    assert message in problem


def test_bytes_without_an_id_and_with_an_unknown_id() -> None:
    decoder = Decoder(SchemaIds({}))
    for data in (None, b"", b"\0\0\0\1", b"text", b"\1\0\0\0\7x"):
        assert decoder.decode(data, "orders", "value") == (None, None)
    assert decoder.decode(framed(b"x", 9), "orders", "value") == (None, "schema 9 is not known")


def test_a_decoder_can_be_pickled() -> None:
    decoder = decoder_of(avro("long"))
    assert decoder.decode(framed(b"\2"), "orders", "value") == ("1", None)
    assert pickle.loads(pickle.dumps(decoder)).decode(framed(b"\2"), "orders", "value") == ("1", None)


@given(st.binary(max_size=200), st.sampled_from([avro(ORDER), avro(NODE), Schema("JSON", "{}")]))
def test_garbage_gives_valid_json_or_a_problem(payload: bytes, schema: Schema) -> None:
    text, problem = decoded(schema, framed(payload))
    assert (text is None) != (problem is None)
    if text is not None:
        json.loads(text)


@given(st.binary(max_size=30), st.integers(0, 20))
def test_decimals_are_exact(data: bytes, scale: int) -> None:
    payload = long(len(data)) + data
    text, _ = decoded(logical("bytes", "decimal", precision=5, scale=scale), framed(payload))
    exact = int.from_bytes(data, signed=True)
    assert Fraction(json.loads(text)) * 10**scale == exact
    assert len(json.loads(text).partition(".")[2]) == scale


@given(
    st.recursive(
        st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary() | st.none(), st.lists, max_leaves=8
    )
)
def test_any_value_is_read_back(value: Any) -> None:
    items: Any = ["null", "long", "string", "bytes", {"type": "array", "items": "Any"}]
    schema = {"type": "record", "name": "Any", "fields": [{"name": "a", "type": items}]}

    def wrapped(item: Any) -> Any:
        return {"a": [wrapped(i) for i in item] if isinstance(item, list) else item}

    def plain(item: Any) -> Any:
        if isinstance(item, list):
            return {"a": [plain(i) for i in item]}
        return {"a": base64.b64encode(item).decode() if isinstance(item, bytes) else item}

    text, problem = decoded(avro(schema), encoded(schema, wrapped(value)))
    assert problem is None
    assert json.loads(text or "") == plain(value)


# --- from the catalog's rows


def row(number: int, schema: Any, subject: str = "s", version: int = 1, **columns: Any) -> dict[str, Any]:
    defaults = {"scope": "_schemas", "epoch": "e1", "schema_type": "AVRO", "schema_references": None}
    text = schema if isinstance(schema, str) else json.dumps(schema)
    own = {"schema_id": number, "schema_text": text, "subject": subject, "version": version}
    return defaults | own | columns


def references_to(*versions: tuple[str, int]) -> str:
    return json.dumps([{"name": s, "subject": s, "version": v} for s, v in versions])


def test_references_are_followed() -> None:
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "n", "type": "int"}]}
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "item", "type": "Item"}]}
    both = ["null", {"type": "array", "items": "shop.Line"}, "shop.Item"]
    ids = schema_ids(
        [
            row(3, both, "both", schema_references=references_to(("line", 2), ("item", 1))),
            row(2, line, "line", 2, schema_references=references_to(("item", 1))),
            row(1, item, "item"),
        ]
    )
    decoder = Decoder(ids)
    assert decoder.decode(framed(b"\2\2\6\0", 3), "orders", "value") == ('[{"item":{"n":3}}]', None)
    assert decoder.decode(framed(b"\4\6", 3), "orders", "value") == ('{"n":3}', None)


def test_unresolvable_references_are_reported() -> None:
    circle = [
        row(1, "int", "a", schema_references=references_to(("b", 1))),
        row(2, "int", "b", schema_references=references_to(("a", 1))),
    ]
    for rows, message in (
        (circle, "circle"),
        (
            [row(1, "int", schema_references=references_to(("gone", 3)))],
            "version 3 of 'gone', which no backup holds",
        ),
        ([row(1, "int", schema_references="[7]")], "cannot be read"),
    ):
        text, problem = Decoder(schema_ids(rows)).decode(framed(b"\2", 1), "orders", "value")
        assert text is None
        assert message in problem


def test_an_id_with_two_meanings_is_not_guessed() -> None:
    equal_schemas = [
        row(1, '{"type":  "int"}'),
        row(1, '{"type":"int"}', epoch="e2"),
        row(1, '{"type": "int"}', "other"),
    ]
    assert Decoder(schema_ids(equal_schemas)).decode(framed(b"\2", 1), "orders", "value") == ("1", None)
    for different_row in (row(1, '"string"', epoch="e2"), row(1, '"string"', scope="_schemas2")):
        text, problem = Decoder(schema_ids([*equal_schemas, different_row])).decode(
            framed(b"\2", 1), "orders", "value"
        )
        assert text is None
        assert "different schemas" in (problem or "")


def test_ids_of_a_block_are_those_that_its_keys_and_values_carry() -> None:
    values = [
        framed(b"x", 7),
        framed(b"", 7),
        framed(b"y", 2**31 - 1),
        b"\0\0\0\0",
        None,
        b"\1\0\0\0\5",
        b"text",
    ]
    values += [b"\0" * 8, b"\0\xff\xff\xff\xff", b""]
    data, rows = b"", np.full((len(values), WIDTH), -1, np.int64)
    for number, value in enumerate(values):
        rows[number, [VALUE, VALUE_LENGTH]] = len(data), -1 if value is None else len(value)
        data += value or b""
    block = Columns(np.frombuffer(data, np.uint8), rows, FORMAT_V2)
    assert used_ids(block, "value") == {7, 2**31 - 1}
    assert used_ids(block, "key") == set()
