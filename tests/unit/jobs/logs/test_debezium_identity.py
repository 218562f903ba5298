"""Tables and transactions of a Debezium feed are told apart by their parts, and events by their order.

No JVM and no broker: a decoder gets the messages as a task gives them to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.jobs.logs.test_debezium_feed import A, B, batch, begin, end, event, rows, transactions_of
from tests.unit.jobs.logs.test_debezium_tables import PlannedFlush

from lakebackup.errors import Refused
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup_jobs.logs.feeds.debezium_decoder import Outlook
from lakebackup_jobs.logs.feeds.debezium_json import key_structures
from lakebackup_jobs.logs.feeds.debezium_tables import CapturedTable, TableName, Tables, key_form
from lakebackup_jobs.logs.feeds.schema_changes import SchemaChanges

if TYPE_CHECKING:
    from lakebackup.storage import Storage

LSN = "00000025:00000d98:00a2"
SERVER = {"connector": "sqlserver", "schema": "dbo"}


def sql_server(op: str, db: str, row: Any, order: int = 1, tx: str = LSN) -> tuple[Any, Any]:
    """An event of dbo.orders in a database of SQL Server, whose transactions have positions as ids."""
    key, value = event(op, {"id": 1}, row, 5, order, **{**SERVER, "db": db, "table": "orders"})
    return key, value | {"transaction": {"id": tx, "total_order": order, "data_collection_order": order}}


def server_end(ts: int, count: int, *collections: str, tx: str = LSN) -> tuple[Any, Any]:
    names = [{"data_collection": name, "event_count": count} for name in collections]
    return {"id": tx}, {
        "status": "END", "id": tx, "event_count": count, "ts_ms": ts, "data_collections": names or None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TableName("tenant1", "dbo", "orders"), TableName("tenant2", "dbo", "orders")),
        (TableName("d", "a.b", "c"), TableName("d", "a", "b.c")),
        (TableName("d.a", "b", "c"), TableName("d", "a.b", "c")),
        (TableName("a", None, "t"), TableName(None, "a", "t")),
    ],
)
def test_tables_are_told_apart_by_the_parts_of_their_names(first: TableName, second: TableName) -> None:
    assert Tables().number("shop", first) != Tables().number("shop", second)
    assert Tables().number("shop", first) != Tables().number("store", first)


def test_each_database_of_a_connector_has_its_own_tables(storage: Storage) -> None:
    flush = PlannedFlush(storage, transactions_of(server_end(1005, 1, "tenant1.dbo.orders")))
    [decoded] = flush.decode(A, batch(sql_server("c", "tenant1", {"id": 1})))
    other_flush = PlannedFlush(storage, transactions_of(server_end(1005, 1, "tenant2.dbo.orders")))
    [other_decoded] = other_flush.decode(B, batch(sql_server("d", "tenant2", None)))
    assert decoded.records["table_id"] != other_decoded.records["table_id"]
    assert flush.reports[0]["tables"][0][1:3] == ["tenant1.dbo", "orders"]


def test_transactions_of_two_databases_may_have_one_id(storage: Storage) -> None:
    transactions = transactions_of(server_end(1005, 1, "tenant1.dbo.orders"))
    flush = PlannedFlush(storage, transactions)
    [decoded] = flush.decode(A, batch(sql_server("c", "tenant1", {"id": 1})))
    [waiting] = flush.decode(B, batch(sql_server("c", "tenant2", {"id": 1})))
    assert ([row[3] for row in rows(decoded)], len(waiting.records), waiting.upto) == ([1005], 0, 0)
    flush.checkpoint()
    later = flush.next(server_end(2005, 2, "tenant2.dbo.orders"))
    messages = [sql_server("c", "tenant2", {"id": 1}), sql_server("u", "tenant2", {"id": 1, "n": 2}, 2)]
    [decoded] = later.decode(B, batch(*messages))
    assert [row[3] for row in rows(decoded)] == [2005, 2005]
    assert later.checkpoint(1004) == 2004


def test_an_end_that_an_earlier_version_read_ends_the_same_transaction(storage: Storage) -> None:
    """It did not know the databases: a transaction that is sent again after the upgrade is not a new one."""
    earlier = transactions_of(server_end(1005, 1))
    transactions = transactions_of(server_end(1005, 1, "tenant1.dbo.orders"), earlier=earlier)
    assert transactions.rows["key"].to_pylist() == [LSN]
    [decoded] = PlannedFlush(storage, transactions).decode(A, batch(sql_server("c", "tenant1", {"id": 1})))
    assert [row[3] for row in rows(decoded)] == [1005]


def test_a_log_of_an_earlier_version_continues_with_its_numbers(storage: Storage) -> None:
    name = TableName("shop", "public", "a")
    legacy = Tables(by_parts=False)
    flush = PlannedFlush(storage, transactions_of(end(5, 1005, 1)), Outlook(tables=legacy))
    [decoded] = flush.decode(A, batch(event("c", {"id": 1}, {"id": 1}, 5)))
    assert decoded.records["table_id"].to_pylist() == [legacy.number("shop", name)]
    assert legacy.number("shop", name) == legacy.number("shop", TableName("other", "public", "a"))
    assert legacy.number("", TableName("inv", None, "a")) == legacy.number("", TableName(None, "inv", "a"))


def test_a_log_of_an_earlier_version_refuses_tables_that_it_cannot_tell_apart(storage: Storage) -> None:
    legacy = Outlook(tables=Tables(by_parts=False))
    flush = PlannedFlush(storage, transactions_of(server_end(1005, 2, "tenant1.dbo.orders")), legacy)
    first, second = sql_server("c", "tenant1", {"id": 1}), sql_server("c", "tenant2", {"id": 1}, 2)
    second[1]["transaction"]["id"] = first[1]["transaction"]["id"] = "5:1"
    flush = PlannedFlush(storage, transactions_of(end(5, 1005, 2)), legacy)
    with pytest.raises(Refused, match=r"\[0\] offset 1 is of table tenant2\.dbo\.orders"):
        flush.decode(A, batch(first, second))
    state = SchemaChanges().captured(0, [report(TableName("t1", "dbo", "o"))])
    with pytest.raises(Refused, match=r"A change in shop\.t/0 is of table t2\.dbo\.o"):
        state.captured(0, [report(TableName("t2", "dbo", "o"))])


def report(name: TableName) -> dict[str, Any]:
    """What a decoder reports of a table."""
    return {"place": "shop.t/0", "names": [[Tables(by_parts=False).number("", name), list(name), None]]}


def test_a_table_keeps_what_is_known_of_its_key() -> None:
    table = CapturedTable(TableName("d", "s", "t"), {"id": "INTEGER"})
    assert table.with_events(CapturedTable(table.name), "").key == {"id": "INTEGER"}


@pytest.mark.parametrize(
    ("rules", "captured"),
    [
        (["tenant1.dbo.orders"], {"tenant1"}),
        (["dbo.orders"], {"tenant1", "tenant2", "a.b"}),
        (["tenant?.*"], {"tenant1", "tenant2"}),
        (["tenant?.d*.*"], {"tenant1", "tenant2"}),
        (["*.*.*", "!tenant1.dbo.*"], {"tenant2", "a.b"}),
        (["`a.b`.dbo.orders"], {"a.b"}),
        (["!dbo.orders"], set()),
        (["orders.*"], set()),
    ],
)
def test_filters_name_a_table_by_database_schema_and_table(rules: list[str], captured: set[str]) -> None:
    tables, databases = TableFilter(rules), ("tenant1", "tenant2", "a.b")
    names = {db: Tables().database("sqlserver", TableName(db, "dbo", "orders")) for db in databases}
    assert {db for db in databases if tables.matches(names[db], "orders")} == captured


def restarted(values: list[int], order: int = 1, *, table: str = "a") -> list[tuple[Any, Any]]:
    """Updates of row 1 in transaction 7, whose numbers start with `order`."""
    return [
        event("u", {"id": 1}, {"v": value}, 7, number, table=table)
        for number, value in enumerate(values, order)
    ]


def latest(*decoded: Any) -> Any:
    """The value of the change that comes last in the log."""
    return max((row for decoded_batch in decoded for row in rows(decoded_batch)), key=lambda row: row[4:])[2]


BEGUN_TWICE = transactions_of(begin(7, 1005), begin(7, 1005), end(7, 1005, 4))


@pytest.mark.parametrize("batches", [1, 2])
def test_the_last_change_counts_when_the_connector_was_restarted_within_a_transaction(
    storage: Storage, batches: int
) -> None:
    """The numbers start again at 1, and the end counts only the events since then."""
    messages = [*restarted([1, 2, 3, 4, 5, 6]), *restarted([7, 8, 9, 10])]
    flush = PlannedFlush(storage, BEGUN_TWICE)
    parts = [batch(*messages)] if batches == 1 else [batch(*messages[:6]), batch(*messages[6:], first=6)]
    decoded = flush.decode(A, *parts)
    assert latest(*decoded) == b'{"v":10}'
    assert flush.checkpoint() == 1004


def test_the_last_change_counts_when_a_restarted_connector_sends_all_again(storage: Storage) -> None:
    transactions = transactions_of(begin(7, 1005), begin(7, 1005), end(7, 1005, 10))
    decoded = PlannedFlush(storage, transactions).decode(
        A, batch(*restarted([1, 2, 3]), *restarted(list(range(1, 11))))
    )
    assert latest(*decoded) == b'{"v":10}'


def test_the_order_holds_in_a_later_flush(storage: Storage) -> None:
    first = PlannedFlush(storage, transactions_of(begin(7, 1005), end(7, 1005, 9)))
    early = first.decode(A, batch(*restarted([1, 2, 3, 4, 5, 6])))
    first.checkpoint()
    late = first.next().decode(A, batch(*restarted([7, 8]), first=6))
    assert latest(*early, *late) == b'{"v":8}'


def test_rows_without_a_key_that_are_sent_again_are_one_row(storage: Storage) -> None:
    def inserted(value: int, number: int) -> tuple[Any, Any]:
        return event("c", None, {"v": value}, 7, number, lsn=100 + value)

    messages = [inserted(1, 1), inserted(2, 2), inserted(1, 1), inserted(2, 2), inserted(3, 1)]
    [decoded] = PlannedFlush(storage, BEGUN_TWICE).decode(A, batch(*messages))
    assert len({row[1] for row in rows(decoded)}) == 3


def test_a_transaction_with_a_restart_waits_until_every_partition_is_read(storage: Storage) -> None:
    """Its end does not count the events before the restart, which may be among those that were not read."""
    transactions = transactions_of(begin(7, 1005), begin(7, 1005), end(7, 1005, 2), end(8, 2005, 1))
    unread = Outlook(ends={"shop.public.b/0": 200})
    flush = PlannedFlush(storage, transactions, unread)
    flush.decode(A, batch(*restarted([1, 2, 3]), *restarted([4, 5])))
    flush.decode(B, batch(event("u", {"id": 1}, {}, 8, table="b")))
    assert flush.checkpoint() is not None
    assert flush.checkpoint() < 1005
    next_flush = flush.next()
    [late] = next_flush.decode(B, batch(*restarted([6], 9, table="b"), first=100))
    assert len(late.records) == 1


def test_an_end_counts_every_event_once(storage: Storage) -> None:
    flush = PlannedFlush(storage, transactions_of(end(7, 1005, 3)))
    flush.decode(A, batch(*restarted([1]), *restarted([1])))
    assert flush.checkpoint() == 1004
    flush.decode(B, batch(*restarted([2, 3], 2, table="b")))
    assert flush.checkpoint() == 1004  # another transaction may end at 1005


_KEYS = [
    '{"id":1}', '{"id":-7}', '{"id":18446744073709551615}', '{"id":"1"}', '{"id":"a\\"b"}', '{"id":true}',
    '{"id":1.5}', '{"id":null}', '{"id":[1]}', '{"id":{"a":1}}', '{"nr":1}', '{"ID":1}', '{"ü.*":1}',
    '{"a":1,"b":"x"}', '{"b":"x","a":1}', '{"a":1,"b":"}"}', '1', '"{}"', None,
]  # fmt: skip


@pytest.mark.parametrize("expected", [*_KEYS, '{"id":12}'])
def test_an_expected_structure_does_not_change_the_form_of_a_key(expected: str | None) -> None:
    """The expression that is quicker than DuckDB fits only keys of the same form."""
    [structure] = key_structures(pa.chunked_array([[expected]], pa.string()), None).to_pylist()
    for key in _KEYS:
        column = pa.chunked_array([[key]], pa.string())
        [quick], [exact] = (key_structures(column, text).to_pylist() for text in (structure, None))
        assert key_form(quick) == key_form(exact), key
