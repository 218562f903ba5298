"""Records of a schema registry, and values that carry a schema's id."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup_jobs.kafka.format.registry import decode, schema_id_of

KEY = b'{"keytype":"SCHEMA","subject":"orders-value","version":2,"magic":1}'
RECORD_COLUMNS = {
    "backup_id": "b", "source": "s", "scope": "_schemas", "epoch": "e", "log_region": "0", "log_position": 0,
    "log_ts": 0,
}  # fmt: skip


def decoded(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """The decoded row without null and false columns. The table `schemas` takes the row."""
    row = decode(key, value)
    assert row.keys() <= set(ARROW_SCHEMAS["schemas"].names)
    pa.RecordBatch.from_pylist([RECORD_COLUMNS | row], ARROW_SCHEMAS["schemas"])
    return {column: cell for column, cell in row.items() if cell not in (None, False)}


SCHEMA_COLUMNS = {"kind": "schema", "subject": "orders-value", "version": 2}


@pytest.mark.parametrize(
    ("key", "value", "row"),
    [
        pytest.param(
            KEY,
            b'{"subject":"orders-value","version":2,"id":7,"schema":"\\"string\\"","deleted":false}',
            {**SCHEMA_COLUMNS, "schema_id": 7, "schema_type": "AVRO", "schema_text": '"string"'},
            id="a schema",
        ),
        pytest.param(
            KEY,
            b'{"subject":"orders-value","version":2,"id":7,"schemaType":"JSON","schema":"{}","deleted":true,'
            b'"references":[{"name":"a","subject":"b","version":1}],"md5":"x","ruleSet":null}',
            {
                **SCHEMA_COLUMNS, "schema_id": 7, "schema_type": "JSON", "schema_text": "{}", "deleted": True,
                "schema_references": '[{"name": "a", "subject": "b", "version": 1}]',
                "detail": '{"md5": "x", "ruleSet": null}',
            },
            id="a deleted one with all that newer registries write",
        ),
        pytest.param(KEY, None, {**SCHEMA_COLUMNS, "erased": True}, id="erased"),
        pytest.param(KEY, b"", {**SCHEMA_COLUMNS, "erased": True}, id="erased by an empty value"),
        pytest.param(
            b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}',
            b'{"tenant":"default","context":".eu"}',
            {"kind": "context", "subject": ":.eu:", "detail": '{"tenant": "default", "context": ".eu"}'},
            id="a context",
        ),
        pytest.param(
            b'{"keytype":"CONFIG","subject":null,"magic":0}',
            b'{"compatibilityLevel":"NONE"}',
            {"kind": "config", "detail": '{"compatibilityLevel": "NONE"}'},
            id="a setting of the registry",
        ),
        pytest.param(
            b'{"keytype":"DELETE_SUBJECT","subject":"orders-value","magic":0}',
            b'{"subject":"orders-value","version":3}',
            {
                "kind": "delete_subject", "subject": "orders-value", "version": 3,
                "detail": '{"subject": "orders-value", "version": 3}',
            },
            id="a subject's deletion",
        ),
        pytest.param(b'{"keytype":"NOOP","magic":0}', None, {"kind": "noop", "erased": True}, id="a mark"),
        pytest.param(b'{"a":1}', b"{}", {"kind": "unknown", "detail": "{}"}, id="a key of another program"),
    ],
)  # fmt: skip
def test_a_record_is_decoded(key: bytes, value: bytes | None, row: dict[str, Any]) -> None:
    assert decoded(key, value) == row


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (None, b"{}", "key: there is none"),
        (b"\0\0\0\0\1", b"{}", "key: it is not JSON"),
        (b"[1]", b"{}", "key: it is JSON, but no object"),
        (KEY, b"<xml/>", "value: it is not JSON"),
        (KEY, b"\xff\xfe", "value: it is not JSON"),
        (KEY, b'"text"', "value: it is JSON, but no object"),
        (KEY, b'{"id":NaN}', "value: it is not JSON: NaN is no JSON"),
        (KEY, b'{"id":"7"}', "id is no number of 32 bits"),
        (KEY, b'{"id":2147483648}', "id is no number of 32 bits"),
        (KEY, b'{"id":true}', "id is no number of 32 bits"),
        (KEY, b'{"schema":5}', "schema is no text"),
        (KEY, b'{"schema":"\\ud800"}', "schema is no valid text"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1.5}', b"{}", "version is no number of 32 bits"),
        (b"[" * 100_000, b"{}", "key: it is not JSON"),
    ],
    ids=lambda part: None if isinstance(part, bytes) else part,
)
def test_an_invalid_record_is_reported(key: bytes | None, value: bytes, problem: str) -> None:
    assert decoded(key, value)["problem"].startswith(problem)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["keytype", "subject", "version", "id", "schema", "references", "x"]), inner
        )
    ),
    max_leaves=6,
)


_ANY = _JSON.map(lambda document: json.dumps(document).encode()) | st.none() | st.binary(max_size=40)


@given(_ANY, _ANY)
def test_anything_makes_a_row(key: bytes | None, value: bytes | None) -> None:
    decoded(key, value)
    decoded(KEY, value)


@pytest.mark.parametrize(
    ("value", "schema_id"),
    [
        (None, None),
        (b"", None),
        (b"\0\0\0\0", None),
        (b"\0\0\0\0\x07", 7),
        (b"\0\x7f\xff\xff\xffabc", 2**31 - 1),
        (b"\0\xff\xff\xff\xff", None),
        (b"\1\0\0\0\x07", None),
    ],
)
def test_the_id_that_a_value_carries(value: bytes | None, schema_id: int | None) -> None:
    assert schema_id_of(value) == schema_id
