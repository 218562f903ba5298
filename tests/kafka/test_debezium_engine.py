"""What Debezium's engine says of a real PostgreSQL, which everything that reads it relies on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.support import kafka_truth as truth
from tests.support.debezium import Debezium

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres

    from lakebackup_jobs.demo.broker import Broker

# What the project makes of it is checked by test_debezium_feed.py and test_debezium_restored.py.
pytestmark = [pytest.mark.kafka, pytest.mark.long]


class Feed:
    """The topics of one connector, read anew each time."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self._bootstrap, self._prefix = broker.bootstrap, prefix
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def read(self, topic: str) -> list[tuple[Any, Any]]:
        """(key, value) of each message, as JSON."""
        if topic not in self._admin.list_topics(timeout=10).topics:
            return []
        return [
            (r.key and json.loads(r.key), r.value and json.loads(r.value))
            for r in truth.contents(self._bootstrap, topic).get(0, [])
        ]

    def table(self, name: str) -> list[tuple[Any, Any]]:
        return self.read(f"{self._prefix}.public.{name}")

    def ends(self) -> dict[int, dict[str, Any]]:
        """The end of every transaction, by its number."""
        found = self.read(f"{self._prefix}.transaction")
        values = [value.get("payload", value) for _, value in found]
        return {number(v["id"]): v for v in values if v["status"] == "END"}


def number(transaction: str) -> int:
    """The number of the transaction: its id is that and a place in the log, another one in each message."""
    return int(transaction.partition(":")[0])


def test_changes_transactions_and_heartbeats(broker: Broker, postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.database()
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY, s text)")
        connection.execute("CREATE TABLE b (x int, y text, PRIMARY KEY (x, y))")
        connection.execute("INSERT INTO a VALUES (1, 'there before'), (2, 'too')")
    with Debezium(tmp_path / "connect", broker.bootstrap, postgres, database) as debezium:
        feed = Feed(broker, debezium.prefix)
        truth.until(lambda: len(feed.table("a")) == 2, "the rows that were there arrive")
        with postgres.connect(database) as connection:
            for statement in (
                "INSERT INTO a VALUES (3, 'three')",
                "UPDATE a SET s = 'drei' WHERE id = 3",
                "UPDATE a SET id = 4 WHERE id = 3",
                "DELETE FROM a WHERE id = 4",
            ):
                connection.execute(statement)
                connection.commit()
            connection.execute("INSERT INTO a VALUES (99, 'never')")
            connection.rollback()
            connection.execute("INSERT INTO b VALUES (7, 'seven')")
            connection.execute("INSERT INTO a VALUES (5, 'five')")
            connection.commit()
            connection.execute("TRUNCATE a, b")
        truth.until(lambda: any(v and v["op"] == "t" for _, v in feed.table("b")), "the truncate arrives")
        both = number(feed.table("b")[0][1]["transaction"]["id"])
        truth.until(lambda: both in feed.ends(), "its end arrives")
        heartbeats = f"__debezium-heartbeat.{debezium.prefix}"
        truth.until(lambda: len(feed.read(heartbeats)) > 1, "heartbeats arrive")
        changes, others, ends = feed.table("a"), feed.table("b"), feed.ends()
        kept = truth.settings(broker.bootstrap, f"{debezium.prefix}.public.a")

    seen = [(key and key["id"], value and value["op"]) for key, value in changes]
    assert seen == [
        (1, "r"), (2, "r"), (3, "c"), (3, "u"),
        (3, "d"), (3, None), (4, "c"),  # another key: the old one goes
        (4, "d"), (4, None), (5, "c"), (None, "t"),
    ]  # fmt: skip
    rows = [value and value["after"] for _, value in changes]
    assert [rows[0], rows[2], rows[3]] == [
        {"id": 1, "s": "there before"}, {"id": 3, "s": "three"}, {"id": 3, "s": "drei"},
    ]  # fmt: skip
    first, second = changes[0][1], changes[1][1]
    assert (first["source"]["snapshot"], second["source"]["snapshot"]) == ("first", "last")
    assert first["transaction"] is None
    assert [(key, value["op"]) for key, value in others] == [({"x": 7, "y": "seven"}, "c"), (None, "t")]

    together = [others[0][1], changes[9][1]]
    assert {number(value["transaction"]["id"]) for value in together} == {both}
    assert [value["transaction"]["total_order"] for value in together] == [1, 2]
    assert {value["source"]["txId"] for value in together} == {both}
    assert {value["source"]["ts_us"] // 1000 for value in together} == {ends[both]["ts_ms"]}
    counts = {c["data_collection"]: c["event_count"] for c in ends[both]["data_collections"]}
    assert (counts, ends[both]["event_count"]) == ({"public.a": 1, "public.b": 1}, 2)
    moments = [value["source"]["ts_us"] for _, value in changes if value]
    assert moments == sorted(moments)
    assert (kept["retention.ms"], kept["cleanup.policy"]) == ("-1", "delete")


def test_messages_that_bring_their_schemas(broker: Broker, postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.database()
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY, s text)")
    with Debezium(tmp_path / "connect", broker.bootstrap, postgres, database, schemas=True) as debezium:
        feed = Feed(broker, debezium.prefix)
        truth.until(lambda: bool(feed.ends()), "the first heartbeat's change arrives")
        with postgres.connect(database) as connection:
            connection.execute("INSERT INTO a VALUES (1, 'one')")
        truth.until(lambda: bool(feed.table("a")), "the change arrives")
        transaction = number(feed.table("a")[0][1]["payload"]["transaction"]["id"])
        truth.until(lambda: transaction in feed.ends(), "its end arrives")
    [(key, value)] = feed.table("a")
    assert (key["payload"], value["payload"]["after"]) == ({"id": 1}, {"id": 1, "s": "one"})
    assert key["schema"]["fields"] == [{"type": "int32", "optional": False, "field": "id"}]
