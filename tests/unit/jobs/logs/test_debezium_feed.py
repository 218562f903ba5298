"""Change events of Debezium as records, and the checkpoint up to which their transactions are complete."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakebackup.errors import Damaged, Refused, UsageProblem
from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.topics.forks import BackupEnd, EpochEnd
from lakebackup.storage import Storage, open_storage
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.logs.feeds import Decoded, Range, debezium
from lakebackup_jobs.logs.feeds.debezium import DebeziumFeed
from lakebackup_jobs.logs.feeds.debezium_decoder import region_of
from lakebackup_jobs.logs.feeds.debezium_json import ENDS, ask
from lakebackup_jobs.logs.feeds.debezium_tables import TableName, Tables
from lakebackup_jobs.logs.feeds.registry import feed_of
from lakebackup_jobs.logs.feeds.transactions import (
    AGAIN_MS,
    SCHEMA,
    Transactions,
    carried,
    prepared,
    tidy,
)
from lakebackup_jobs.logs.task import TaskSettings

if TYPE_CHECKING:
    from collections.abc import Collection

FEED = DebeziumFeed({}, ("shop",))
FOLDER = "shop/backups/b/"
# The number of public.a in a log that an earlier version started.
LEGACY_A = Tables(by_parts=False).number("shop", TableName("shop", "public", "a"))
A = Range("shop.public.a", 0, "0" * 32, 0, 100)
B = Range("shop.public.b", 0, "1" * 32, 0, 100)


def event(
    op: str,
    key: Any,
    row: Any = None,
    tx: int | None = None,
    order: int = 1,
    *,
    table: str = "a",
    **source: Any,
) -> tuple[Any, Any]:
    """A message as the engine sends it (fields as of PostgreSQL's connector)."""
    origin = {
        "version": "3.6.3.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1000 + (tx or 0),
        "snapshot": "false", "db": "shop", "sequence": '["26235088","26235128"]', "schema": "public",
        "table": table, "txId": tx, "lsn": 26235128, "xmin": None, **source,
    }  # fmt: skip
    transaction = None
    if tx is not None:
        transaction = {"id": f"{tx}:{26235128 + order}", "total_order": order, "data_collection_order": order}
    return key, {
        "before": None, "after": row, "source": origin, "transaction": transaction, "op": op, "ts_ms": 1,
    }  # fmt: skip


def wrapped(message: tuple[Any, Any]) -> tuple[Any, Any]:
    return tuple(part and {"schema": {"type": "struct", "fields": []}, "payload": part} for part in message)  # type: ignore[return-value]


def batch(*messages: tuple[Any, Any], first: int = 0, sent_ms: int = 0) -> pa.RecordBatch:
    def text(part: Any) -> bytes | None:
        is_raw = part is None or isinstance(part, bytes)
        return part if is_raw else json.dumps(part, separators=(",", ":")).encode()

    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(first, first + len(messages)), pa.int64()),
            "timestamp": pa.array([sent_ms] * len(messages), pa.int64()),
            "key": pa.array([text(key) for key, _ in messages], pa.binary()),
            "value": pa.array([text(value) for _, value in messages], pa.binary()),
        }
    )


def end(tx: int, ts: int, count: int, *, lsn: int = 0) -> tuple[Any, Any]:
    value = {
        "status": "END",
        "id": f"{tx}:{lsn or tx + 10**6}",
        "event_count": count,
        "data_collections": [],
    }
    return {"id": value["id"]}, value | {"ts_ms": ts}


def begin(tx: int, ts: int) -> tuple[Any, Any]:
    value = {"status": "BEGIN", "id": f"{tx}:{tx + 5 * 10**5}", "event_count": None, "data_collections": None}
    return {"id": value["id"]}, value | {"ts_ms": ts}


def transactions_of(
    *ends: tuple[Any, Any], earlier: Transactions | None = None, sent_ms: int = 0
) -> Transactions:
    earlier = earlier or Transactions.none("e")
    end_batch = batch(*ends, first=earlier.next, sent_ms=sent_ms)
    return earlier.with_ends(ask(ENDS, end_batch, "t"), earlier.next + len(ends))


class Flush:
    """One flush over partitions of a feed, without Kafka and Spark."""

    def __init__(self, storage: Storage, transactions: Transactions, folder: str = FOLDER) -> None:
        self.storage, self.transactions, self.folder = storage, transactions, folder
        self.reports: list[Any] = []
        self.context = {"folder": folder, "transactions": prepared(folder)}
        self.transactions.write(storage, self.context["transactions"])

    def decode(self, of: Range, *batches: pa.RecordBatch) -> list[Decoded]:
        decoder = FEED.decoder(self.storage, of, self.context)
        decoded = [decoder.decode(messages) for messages in batches]
        self.reports.append(decoder.finish())
        return decoded

    def checkpoint(self, resolved_ts: int | None = None) -> int | None:
        reports = (report for report in self.reports if report)
        return FEED.checkpoint(self.storage, self.context, reports, iter(()), resolved_ts)

    def next(self, *ends: tuple[Any, Any], folder: str = "shop/backups/c/") -> Flush:
        return Flush(
            self.storage,
            transactions_of(*ends, earlier=Transactions.read(self.storage, carried(self.folder))),
            folder,
        )


def rows(decoded: Decoded) -> list[tuple[Any, ...]]:
    columns = ("type", "key", "value", "commit_ts", "seq", "sub")
    return [tuple(row[c] for c in columns) for row in decoded.records.to_pylist()]


@pytest.mark.parametrize("schemas", [False, True])
def test_changes_become_writes_that_carry_their_values(storage: Storage, schemas: bool) -> None:
    messages = [
        event("c", {"id": 1}, {"id": 1, "s": "é", "big": 9007199254740993, "huge": 10**30}, 5),
        event("u", {"id": 1}, {"id": 1, "s": "x"}, 6),
        event("d", {"id": 1}, None, 6, 2),
        ({"id": 1}, None),
        event("t", None, None, 7),
    ]
    messages = [wrapped(m) for m in messages] if schemas else messages
    flush = Flush(storage, transactions_of(end(5, 1005, 1), end(6, 1006, 2), end(7, 1007, 1)))
    [decoded] = flush.decode(A, batch(*messages))
    value = '{"id":1,"s":"é","big":9007199254740993,"huge":1' + 30 * "0" + "}"
    assert rows(decoded) == [
        ("P", b'{"id":1}', value.encode(), 1005, 1, 1),
        ("P", b'{"id":1}', b'{"id":1,"s":"x"}', 1006, 2, 1),
        ("D", b'{"id":1}', None, 1006, 2, 2),
        ("T", b"", None, 1007, 3, 1),
    ]
    first = decoded.records.to_pylist()[0]
    assert (first["store"], first["cf"], first["op"]) == ("shop", "write", "put")
    assert (first["table_id"], first["region"]) == (LEGACY_A, region_of("shop.public.a", 0))
    assert decoded.upto is None
    assert decoded.marks.to_pylist()[0]["resolved_ts"] == 1006
    assert flush.reports[0]["tables"] == [[LEGACY_A, "public", "a", 1005]]


def test_a_transaction_that_has_not_ended_is_left_for_the_next_flush(storage: Storage) -> None:
    flush = Flush(storage, transactions_of(begin(5, 1005), end(5, 1005, 1), begin(6, 1006)))
    messages = [event("c", {"id": 1}, {"id": 1}, 5), event("c", {"id": 2}, {"id": 2}, 6)]
    [decoded] = flush.decode(A, batch(*messages, first=40))
    assert (len(decoded.records), decoded.upto) == (1, 41)
    assert flush.checkpoint() == 1004  # another may end at 1005


def test_the_checkpoint_waits_for_every_event_of_a_transaction(storage: Storage) -> None:
    ends = end(5, 1005, 1), end(6, 1006, 3), end(7, 1009, 1)
    first = Flush(storage, transactions_of(*ends))
    first.decode(
        A, batch(event("c", {"id": 1}, {}, 5), event("c", {"id": 2}, {}, 6, 1), event("c", {"id": 3}, {}, 7))
    )
    first.decode(B, batch(event("c", {"id": 1}, {}, 6, 3, table="b")))
    assert first.checkpoint() == 1005
    second = first.next()
    second.decode(A, batch(event("c", {"id": 2}, {}, 6, 1), event("c", {"id": 2}, {}, 6, 1)))  # sent again
    assert second.checkpoint(1005) == 1005
    third = second.next(folder="shop/backups/d/")
    third.decode(A, batch(event("c", {"id": 9}, {}, 6, 2)))
    assert third.checkpoint(1005) == 1008


def test_the_checkpoint_waits_for_a_transaction_whose_end_was_lost(storage: Storage) -> None:
    """Transactions that were committed after it are complete, in other partitions."""
    first = Flush(storage, transactions_of(end(5, 1005, 1), end(7, 1400, 1), end(8, 1500, 1)))
    messages = event("c", {"id": 1}, {}, 5), event("c", {"id": 2}, {}, 6, ts_ms=1300)
    [decoded] = first.decode(A, batch(*messages))
    first.decode(B, batch(*(event("c", {"id": tx}, {}, tx, table="b") for tx in (7, 8))))
    assert (decoded.upto, first.checkpoint()) == (1, 1299)
    second = first.next(end(9, 1600, 1))
    second.decode(A, batch(messages[1]))  # it has nothing but what it waits for
    second.decode(B, batch(event("c", {"id": 9}, {}, 9, table="b")))
    assert second.checkpoint(1299) == 1299
    third = second.next(end(6, 1700, 1), folder="shop/backups/d/")
    third.decode(A, batch(messages[1]))
    assert third.checkpoint(1299) == 1699


def test_a_complete_transaction_that_is_sent_again_counts_once(storage: Storage) -> None:
    first = Flush(storage, transactions_of(end(5, 1005, 1), end(6, 1006, 1)))
    first.decode(A, batch(event("c", {"id": 1}, {}, 5), event("u", {"id": 1}, {}, 6)))
    assert first.checkpoint() == 1005
    second = first.next(end(5, 1005, 1), end(6, 1006, 1), end(7, 1007, 1))
    [decoded] = second.decode(A, batch(*(event("u", {"id": 1}, {}, tx) for tx in (5, 6, 7))))
    assert [row[4] for row in rows(decoded)] == [5]  # its end is the fifth message of that topic
    assert second.checkpoint(1005) == 1006


def test_a_recently_sent_transaction_is_recognised_however_old_it_is(storage: Storage) -> None:
    first = Flush(storage, transactions_of(end(5, 1_000_000, 1), end(6, 9_000_000, 1), sent_ms=100))
    first.decode(A, batch(event("c", {"id": 1}, {}, 5), event("u", {"id": 1}, {}, 6)))
    first.checkpoint()
    second = first.next(end(5, 1_000_000, 1), end(6, 9_000_000, 1))
    [decoded] = second.decode(A, batch(event("c", {"id": 1}, {}, 5), event("u", {"id": 1}, {}, 6)))
    assert rows(decoded) == []


def test_a_transaction_that_is_sent_again_is_remembered_again() -> None:
    transactions = transactions_of(end(5, 1000, 0), sent_ms=100)
    transactions = transactions_of(
        end(5, 1000, 0), end(6, 2000, 0), earlier=transactions, sent_ms=200 + AGAIN_MS
    )
    assert transactions.counted([], open_storage("/")).needed_later().rows["key"].to_pylist() == ["5", "6"]


def test_a_forgotten_transaction_that_is_sent_again_is_refused(storage: Storage) -> None:
    first = Flush(storage, transactions_of(end(5, 1000, 1), sent_ms=100))
    first.decode(A, batch(event("c", {"id": 1}, {}, 5)))
    first.checkpoint()
    transactions = Transactions.read(storage, carried(FOLDER))
    second = Flush(
        storage,
        transactions_of(end(6, 2000, 1), earlier=transactions, sent_ms=100 + AGAIN_MS),
        "shop/backups/c/",
    )
    second.decode(A, batch(event("u", {"id": 1}, {}, 6)))
    second.checkpoint()
    assert Transactions.read(storage, carried("shop/backups/c/")).rows["key"].to_pylist() == ["6"]
    # A clock that goes back a little does no harm.
    third = second.next(end(7, 1999, 1), folder="shop/backups/d/")
    assert third.transactions.rows["ts"].to_pylist() == [2000, 2000]
    with pytest.raises(
        Refused, match=r"Transaction 5, which ended at offset 2 .* committed at 1000: .* 5 minutes"
    ):
        second.next(end(5, 1000, 1))


def test_an_end_that_was_sent_late_has_the_time_at_which_it_began(storage: Storage) -> None:
    """A connector that was killed before it sent an end sends it with the time of the next transaction."""
    late = end(5, 2000, 1, lsn=77)
    transactions = transactions_of(begin(5, 1005))
    transactions = transactions_of(
        late, begin(6, 2000), end(6, 2000, 1), end(5, 2000, 1, lsn=99), earlier=transactions
    )
    flush = Flush(storage, transactions)
    [decoded] = flush.decode(A, batch(*(event("u", {"id": 1}, {}, tx) for tx in (5, 6))))
    assert [row[3:5] for row in rows(decoded)] == [(1005, 2), (2000, 4)]
    assert flush.checkpoint() == 1999
    gtid = ({}, {"status": "END", "id": "uuid:5", "event_count": 0, "ts_ms": 7, "data_collections": []})
    assert transactions_of(gtid).rows["key"].to_pylist() == ["uuid:5"]


def test_times_never_go_back(storage: Storage) -> None:
    flush = Flush(storage, transactions_of(end(5, 1005, 1), end(6, 990, 1), end(7, 1006, 1)))
    [decoded] = flush.decode(A, batch(*(event("u", {"id": 1}, {}, tx) for tx in (5, 6, 7))))
    assert [row[3:] for row in rows(decoded)] == [(1005, 1, 1), (1005, 2, 1), (1006, 3, 1)]


def test_rows_of_the_first_snapshot_stand_before_every_transaction(storage: Storage) -> None:
    messages = [
        event("r", {"id": 1}, {}, snapshot="first"),
        event("r", {"id": 2}, {}, snapshot="last"),
        event("u", {"id": 1}, {}, 5),
    ]
    waiting = Flush(storage, transactions_of(begin(5, 1005)))
    [decoded] = waiting.decode(A, batch(*messages))
    assert (len(decoded.records), decoded.upto, waiting.checkpoint()) == (0, 0, None)
    flush = Flush(storage, transactions_of(end(5, 1005, 1)), "shop/backups/s/")
    decoded, decoded_later = flush.decode(A, batch(messages[0]), batch(*messages[1:], first=1))
    assert [row[3:5] for row in rows(decoded) + rows(decoded_later)] == [(1004, 0), (1004, 0), (1005, 1)]
    assert len({row[3:] for row in rows(decoded) + rows(decoded_later)}) == 3


def test_rows_of_an_incremental_snapshot_stand_behind_the_change_before_them(storage: Storage) -> None:
    first = Flush(storage, transactions_of(end(5, 1005, 1)))
    first.decode(A, batch(event("u", {"id": 1}, {}, 5)))
    first.checkpoint()
    second = first.next(end(6, 1006, 1))
    [decoded] = second.decode(
        A,
        batch(
            event("r", {"id": 1}, {}, snapshot="incremental"),
            event("r", {"id": 2}, {}, snapshot="incremental"),
            event("u", {"id": 1}, {}, 6),
        ),
    )
    order = [row[3:] for row in rows(decoded)]
    assert order == sorted(order)
    assert order[0] > (1005, 1, 1)
    assert order[2] == (1006, 2, 1)


ROW = event("r", {"id": 1}, {}, snapshot="first")
TOAST = {"s": "__debezium_unavailable_value"}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([event("u", {"id": 1}, {}, 5), ROW], "a new snapshot"),
        ([ROW, ROW], "a new snapshot"),
        ([event("u", {"id": 1}, {})], "offset 0 does not name its transaction"),
        ([event("d", None, None, 5)], "without a key"),
        ([event("u", {"id": 1}, TOAST, 5)], "whole row"),
    ],
)
def test_events_that_cannot_be_restored_are_refused(
    storage: Storage, messages: list[Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        Flush(storage, transactions_of(end(5, 1005, 1))).decode(A, batch(*messages))


def test_each_row_without_a_key_is_a_row_of_its_own(storage: Storage) -> None:
    flush = Flush(storage, transactions_of(end(5, 1005, 2)))
    [decoded] = flush.decode(A, batch(event("c", None, {"v": 1}, 5, 1), event("c", None, {"v": 1}, 5, 2)))
    assert [row[1].rpartition(b".")[0] for row in rows(decoded)] == [b"#.1.1", b"#.1.2"]


def test_messages_of_the_application_count_and_are_no_records(storage: Storage) -> None:
    flush = Flush(storage, transactions_of(end(5, 1005, 1)))
    key, value = event("m", {"prefix": "p"}, None, 5, table="")
    [decoded] = flush.decode(
        Range("shop.message", 0, "", 0, 9), batch((key, value | {"message": {"content": ""}}))
    )
    assert len(decoded.records) == 0
    assert flush.checkpoint() == 1004


@pytest.mark.parametrize(
    ("value", "message"),
    [(b"{", ".*is not JSON"), (b"\xff", ".*not UTF-8"), (b'{"id":1}', ".*no change event")],
)
def test_an_invalid_event_is_damaged_and_named(storage: Storage, value: bytes, message: str) -> None:
    flush = Flush(storage, transactions_of(end(5, 1005, 1)))
    with pytest.raises(Damaged, match=rf"shop.public.a\[0\] offset 8{message}"):
        flush.decode(A, batch(event("c", {"id": 1}, {}, 5), ({"id": 1}, value), first=7))


def test_long_runs_are_an_object_of_their_own_that_is_deleted_after_the_commit(storage: Storage) -> None:
    flush = Flush(storage, transactions_of(*(end(tx, 1000 + tx, 1) for tx in range(1, 2001))))
    flush.decode(A, batch(*(event("c", {"id": tx}, {}, tx) for tx in range(1, 2001))))
    assert "runs" not in flush.reports[0]
    assert flush.checkpoint() == 2999
    storage.put(f"{FOLDER}complete", b"")
    tidy(storage, FOLDER)
    remaining = [entry.path.removeprefix(FOLDER) for entry in storage.list(FOLDER)]
    assert remaining == ["complete", "transactions.parquet"]
    assert Transactions.read(storage, carried(FOLDER)).rows["done"].to_pylist()[-1]


def test_partitions_of_a_flush_share_its_transactions(storage: Storage) -> None:
    flush = Flush(storage, transactions_of(end(5, 1005, 2)))
    flush.decode(A, batch(event("c", {"id": 1}, {}, 5)))
    storage.delete(flush.context["transactions"])
    flush.decode(B, batch(event("c", {"id": 2}, {}, 5, 2)))
    assert [len(report["runs"]) for report in flush.reports] == [1, 1]


def test_an_empty_flush_keeps_the_checkpoint(storage: Storage) -> None:
    flush = Flush(storage, Transactions.none("e"))
    flush.decode(A)
    assert flush.reports == [None]
    assert (flush.checkpoint(), flush.checkpoint(7)) == (None, 7)
    with pytest.raises(Damaged, match="is missing"):  # the file that the earlier flush should have left
        Transactions.read(storage, carried("shop/backups/none/"))


def test_a_task_that_may_have_gaps_is_refused() -> None:
    settings = TaskSettings("debezium", "h", ("shop",))
    assert isinstance(feed_of(settings, {}), DebeziumFeed)
    with pytest.raises(Refused, match="never whole"):
        feed_of(replace(settings, allow_gaps=True), {})


def test_topics_are_those_of_one_connector() -> None:
    shop = ["shop.public.a", "shop.public.transaction", "shop.message"]
    names = [*shop, "shop.transaction", "__debezium-heartbeat.shop", "other.public.a", "shops.public.a"]
    for pattern in ("shop", r"shop\..*", "shop.public.a"):
        assert DebeziumFeed({}, (pattern,)).topics(names) == sorted(shop)
    with pytest.raises(Refused, match="with transaction metadata"):
        DebeziumFeed({}, ("other",)).topics(names)
    with pytest.raises(UsageProblem, match="several"):
        DebeziumFeed({}, (".*",)).topics([*names, "other.transaction"])


class Cluster:
    """A cluster with the topic of transactions, whose leader has epoch 4; the earlier leader had epoch 3."""

    def __init__(self, end: int, cut_at: int) -> None:
        self.end, self.cut_at = end, cut_at

    def topic_names(self) -> list[str]:
        return ["shop.public.a", "shop.transaction"]

    def describe(self, _: list[str]) -> list[TopicState]:
        return [TopicState("shop.transaction", "e", 1, 1, {})]

    def positions(self, *_: Any) -> tuple[int, list[RegionState]]:
        return 1, [RegionState("shop.transaction", "e", "0", 0, self.end, self.end, 4)]

    def ends(self, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, EpochEnd]:
        return {backup_end: EpochEnd(3, self.cut_at) for backup_end in backup_ends}


def prepare(storage: Storage, monkeypatch: pytest.MonkeyPatch, end: int, cut_at: int) -> Transactions:
    """The transactions known before the second flush. FOLDER has what the first flush left."""
    cluster = Cluster(end, cut_at)
    monkeypatch.setattr(debezium, "Cluster", lambda _: cluster)
    monkeypatch.setattr(debezium, "Logs", lambda *_: cluster)
    monkeypatch.setattr(DebeziumFeed, "_read_ends", lambda _, transactions, *__: (transactions, None))
    context = FEED.prepare(storage, "shop/backups/c/", FOLDER, None)
    return Transactions.read(storage, context["transactions"])


@pytest.mark.parametrize(("end", "cut_at"), [(5, 5), (10, 5), (20, 5), (5, 10)])
def test_ends_of_transactions_that_were_cut_back_are_missed_however_many_came_since(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, end: int, cut_at: int
) -> None:
    Transactions(SCHEMA.empty_table(), "e", 10, leader_epoch=3).write(storage, carried(FOLDER))
    with pytest.raises(Refused, match=r"shop\.transaction was cut back behind offset 10"):
        prepare(storage, monkeypatch, end, cut_at)


def test_a_new_leader_that_has_all_ends_goes_on(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    Transactions(SCHEMA.empty_table(), "e", 10, leader_epoch=3).write(storage, carried(FOLDER))
    assert prepare(storage, monkeypatch, 20, 10).leader_epoch == 4


def test_the_state_of_an_earlier_version_is_read(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"epoch": "e", "next": 10, "begin": 1, "begun": {}, "places": {}, "forgot": -1}
    write_rows(storage, carried(FOLDER), SCHEMA.with_metadata({"feed": json.dumps(state)}), [])
    assert prepare(storage, monkeypatch, 20, 5).leader_epoch == 4
    with pytest.raises(Refused, match="cut back behind offset 10"):
        prepare(storage, monkeypatch, 5, 5)
