"""Rows of a Debezium feed: values that the database left out, keys that change, malformed messages.

No JVM and no broker: a decoder gets the messages as a task gives them to it.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.logs.test_debezium_feed import (
    A,
    Flush,
    batch,
    end,
    event,
    rows,
    transactions_of,
    wrapped,
)
from tests.unit.jobs.logs.test_debezium_tables import PlannedFlush

from lakebackup.errors import Damaged, LakebackupError, Refused, UsageProblem
from lakebackup_jobs.logs.feeds.debezium_checks import check_ends
from lakebackup_jobs.logs.feeds.debezium_decoder import DebeziumDecoder, Outlook
from lakebackup_jobs.logs.feeds.debezium_json import ENDS, ask
from lakebackup_jobs.logs.feeds.debezium_tables import CapturedTable, TableName, Tables, common_form, key_form
from lakebackup_jobs.logs.feeds.unavailable import DEFAULT, Placeholder

if TYPE_CHECKING:
    from lakebackup.storage import Storage

ONE_TRANSACTION = transactions_of(end(5, 1005, 1))
TWO_TRANSACTIONS = transactions_of(end(5, 1005, 1), end(6, 1006, 1))
BYTES = DEFAULT.encode()

# What Debezium writes for a column that was left out, by the column's type and binary.handling.mode.
FORMS = {
    "text, json, xml, uuid": DEFAULT,
    "bytes": base64.b64encode(BYTES).decode(),
    "bytes as base64-url-safe": base64.urlsafe_b64encode(BYTES).decode(),
    "bytes as hex": BYTES.hex(),
    "text[], uuid[]": [DEFAULT],
    "int[], bigint[], date[], timestamp[]": list(BYTES),
    "real[], double precision[]": [float(byte) for byte in BYTES],
    "numeric[] as text": [str(byte) for byte in BYTES],
    "hstore as map": {DEFAULT: DEFAULT},
    "array in an array": [["a"], [DEFAULT]],
}


def has_left_out_value(row: Any, placeholder: Placeholder = Placeholder()) -> bool:  # noqa: B008
    """Whether a row has a value that the database left out."""
    text = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
    return placeholder.is_in(pa.chunked_array([[None, text]])) == [1]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_value_that_was_left_out_is_recognised_in_every_type(storage: Storage, form: Any) -> None:
    with pytest.raises(Refused, match=r"shop\.public\.a\[0\] offset 0 does not hold the whole row"):
        Flush(storage, ONE_TRANSACTION).decode(A, batch(event("u", {"id": 1}, {"id": 1, "large": form}, 5)))


@pytest.mark.parametrize(
    "value",
    [
        f"see {DEFAULT} in the documentation",
        [f"{DEFAULT}s"],
        list(BYTES[:-1]),
        [*BYTES, 1],
        list(BYTES[::-1]),
        {"note": f"'{DEFAULT}'"},
        list(range(1000, 1028)),
        None,
    ],
)
def test_a_value_that_resembles_the_placeholder_is_a_value(storage: Storage, value: Any) -> None:
    [decoded] = Flush(storage, ONE_TRANSACTION).decode(
        A, batch(event("u", {"id": 1}, {"id": 1, "v": value}, 5))
    )
    assert json.loads(rows(decoded)[0][2])["v"] == value


@given(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text[:4] != "hex:"),
        st.binary(min_size=1).map(lambda value: f"hex:{value.hex()}"),
    ),
    st.sampled_from(["text", "base64", "url-safe", "hex", "texts", "numbers", "signed", "map", "nested"]),
)
def test_a_placeholder_of_the_users_own_is_recognised_in_every_type(text: str, form: str) -> None:
    placeholder = Placeholder(text)
    own = bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
    texts = own.decode(errors="replace")
    value: Any = {
        "text": texts,
        "base64": base64.b64encode(own).decode(),
        "url-safe": base64.urlsafe_b64encode(own).decode(),
        "hex": own.hex(),
        "texts": [texts],
        "numbers": list(own),
        "signed": [byte - 256 if byte > 127 else byte for byte in own],
        "map": {texts: texts},
        "nested": {"a": [{"b": [texts]}]},
    }[form]
    assert has_left_out_value({"id": 1, "large": value}, placeholder)
    assert not has_left_out_value({"id": 1, "large": "another value, with a length of its own"}, placeholder)


@pytest.mark.parametrize("text", ["", "hex:", "hex:zz", "hex:123"])
def test_an_invalid_placeholder_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="--unavailable-value"):
        Placeholder(text)


@pytest.mark.parametrize(
    ("key", "new_key"),
    [
        ({"id": 1}, {"id": 1, "region": "eu"}),
        ({"id": 1, "region": "eu"}, {"id": 1}),
        ({"id": 1}, {"nr": 1}),
        ({"id": 1}, {"id": "1"}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"id": 1}, None),
        (None, {"id": 1}),
        ({"id": {"scale": 0, "value": "AQ=="}}, {"id": 1}),
        ({"id": 1}, {"id": 1.0}),
    ],
)
@pytest.mark.parametrize("when", ["in one batch", "in the next batch", "in the next flush"])
def test_a_key_that_gets_other_columns_is_refused(
    storage: Storage, key: Any, new_key: Any, when: str
) -> None:
    """Rows under the earlier key would stay beside the same rows under the new one."""
    first, second = event("c", key, {"v": 1}, 5), event("c", new_key, {"v": 2}, 6)
    flush, batches = Flush(storage, TWO_TRANSACTIONS), [batch(first), batch(second, first=1)]
    if when == "in one batch":
        batches = [batch(first, second)]
    elif when == "in the next flush":
        flush.decode(A, batches.pop(0))
        [report] = flush.reports
        tables = [(number, CapturedTable(TableName(*name), form)) for number, name, form in report["names"]]
        known_tables = Tables(by_parts=False).with_tables(tables, "")
        flush = PlannedFlush(storage, TWO_TRANSACTIONS, Outlook(tables=known_tables))
    with pytest.raises(
        Refused, match=r"shop\.public\.a\[0\] offset 1 has the key .* got another key"
    ) as caught:
        flush.decode(A, *batches)
    assert "topic.prefix" in (caught.value.hint or "")


def test_values_of_a_key_do_not_change_its_form() -> None:
    small, large = key_form('{"id":"UBIGINT","n":"NULL"}'), key_form('{"id":"BIGINT","n":"VARCHAR"}')
    assert common_form(small, large) == {"id": "INTEGER", "n": "VARCHAR"}
    assert common_form(key_form('{"id":"VARCHAR","n":"NULL"}'), large) is None


@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_a_change_without_its_row_is_refused(storage: Storage, op: str) -> None:
    with pytest.raises(
        Refused, match="offset 0 changes a row and does not hold what the row became"
    ) as error:
        Flush(storage, ONE_TRANSACTION).decode(A, batch(event(op, {"id": "7"}, None, 5)))
    assert "change_streams_update_full" in (error.value.hint or "")
    assert "transforms" in (error.value.hint or "")


def test_collections_of_mongodb_are_tables(storage: Storage) -> None:
    source = {"connector": "mongodb", "db": "shopdb", "schema": None, "table": None}
    messages = [
        event("c", {"id": "7"}, f'{{"_id":7,"of":"{name}"}}', 5, order, **source, collection=name)
        for order, name in enumerate(("orders", "people"), 1)
    ]
    flush = Flush(storage, transactions_of(end(5, 1005, 2)))
    [decoded] = flush.decode(A, batch(*messages))
    assert len(set(decoded.records["table_id"].to_pylist())) == 2
    assert {(db, name) for _, db, name, _ in flush.reports[0]["tables"]} == {
        ("shopdb", "orders"),
        ("shopdb", "people"),
    }
    assert rows(decoded)[0][2] == b'{"_id":7,"of":"orders"}'


@pytest.mark.parametrize("schemas", [False, True])
def test_columns_called_schema_and_payload_are_columns(storage: Storage, schemas: bool) -> None:
    keys = [{"schema": 7}, {"schema": 7, "payload": 1}]
    messages = [
        event("c", key, {**key, "v": 1}, 5, order, table=f"t{order}") for order, key in enumerate(keys, 1)
    ]
    messages = [wrapped(message) for message in messages] if schemas else messages
    [decoded] = Flush(storage, transactions_of(end(5, 1005, 2))).decode(A, batch(*messages))
    assert [json.loads(row[1]) for row in rows(decoded)] == keys
    assert [json.loads(row[2]) for row in rows(decoded)] == [{**key, "v": 1} for key in keys]


def test_messages_outside_of_transactions_and_tombstones_are_passed_over(storage: Storage) -> None:
    message = event("m", {"prefix": "audit"}, None, table="", schema="")
    tombstones = ({"id": 1}, None), ({"id": 1}, b"null")
    messages = message, *tombstones, event("c", {"id": 1}, {"id": 1}, 5)
    [decoded] = Flush(storage, ONE_TRANSACTION).decode(A, batch(*messages))
    assert [row[1] for row in rows(decoded)] == [b'{"id":1}']


def changed(**fields: Any) -> Any:
    key, value = event("c", {"id": 1}, {"id": 1}, 5)
    return key, value | fields


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (({"id": 1}, b"\x00\x00\x00\x00\x07Obj"), "is not JSON"),
        (({"id": 1}, b"\xff\xfe"), "is not UTF-8 text"),
        ((b"{", {"op": "c"}), "is not JSON"),
        (({"id": 1}, []), "is no change event"),
        (({"id": 1}, {"id": 1, "v": 2}), "is no change event"),
        (changed(op=5), "an operation that Debezium does not have"),
        (changed(source=[]), "without its source"),
        (changed(after=3), "no JSON object"),
        (changed(after=[1]), "no JSON object"),
        (changed(transaction={"id": "5:1", "total_order": "first"}), "no number within its transaction"),
        (changed(source={"name": "shop", "db": "shop", "schema": "public"}), "names no table"),
    ],
)
def test_a_malformed_event_is_named_by_topic_partition_and_offset(
    storage: Storage, message: Any, problem: str
) -> None:
    with pytest.raises(Damaged, match=rf"shop\.public\.a\[0\] offset 40.*{problem}"):
        Flush(storage, ONE_TRANSACTION).decode(A, batch(message, first=40))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.text(max_size=3), parts, max_size=2),
    max_leaves=5,
)
FIELDS = ["op", "after", "source", "transaction", "ts_ms", "before"]
PARTS = ["name", "table", "schema", "db", "snapshot", "ts_ms", "lsn", "id", "total_order"]


@given(st.data())
def test_an_event_with_any_content_is_read_or_named(data: st.DataObject) -> None:
    key, value = event("c", {"id": 1}, {"id": 1}, 5)
    for name in data.draw(st.lists(st.sampled_from(FIELDS), max_size=2)):
        value[name] = data.draw(JSON)
    for name in data.draw(st.lists(st.sampled_from(PARTS), max_size=2)):
        for part in (value["source"], value["transaction"]):
            if isinstance(part, dict) and name in part:
                part[name] = data.draw(JSON)
    decoder = DebeziumDecoder(None, A, "", ONE_TRANSACTION, {"5": 0})  # type: ignore[arg-type]
    message = (data.draw(st.sampled_from([key, None, {"id": "x"}])), value)
    try:
        decoder.decode(batch(message, first=40))
    except LakebackupError as error:
        assert "shop.public.a[0] offset 40" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("message", "error", "problem"),
    [
        ({"status": "END", "id": "5:1", "event_count": 1}, Refused, "does not say when"),
        ({"status": "END", "id": "5:1", "event_count": 1, "ts_ms": None}, Refused, "does not say when"),
        ({"status": "END", "id": "5:1", "ts_ms": 1}, Damaged, "without the number of its events"),
        ({"status": "END", "event_count": 1, "ts_ms": 1}, Damaged, "no begin or end of a transaction"),
        ({"status": "STOP", "id": "5:1"}, Damaged, "no begin or end of a transaction"),
        ([1], Damaged, "no begin or end of a transaction"),
    ],
)
def test_a_malformed_end_of_a_transaction_is_named_by_its_offset(
    message: Any, error: type[LakebackupError], problem: str
) -> None:
    ends = ask(ENDS, batch(end(4, 1, 1), (None, message), first=7), "shop.transaction[0]")
    with pytest.raises(error, match=rf"shop\.transaction\[0\] offset 8 .*{problem}"):
        check_ends(ends, "shop.transaction[0]")


def test_a_begin_needs_no_time() -> None:
    begin = {"status": "BEGIN", "id": "5:1", "event_count": None}
    check_ends(ask(ENDS, batch((None, begin)), "t"), "t")
