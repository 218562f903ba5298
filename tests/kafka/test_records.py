"""Asking the records inside backups: records('topic') in a SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query import record_query as ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def produce(lab: Lab, topic: str, records: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": lab.bootstrap})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


def rows(lab: Lab, sql: str) -> list[dict[str, Any]]:
    return ask.select(CatalogReader(str(lab.folder)), sql).rows.read_all().to_pylist()


@pytest.mark.long
def test_every_record_once_on_both_engines(lab: Lab, topic: Callable[..., str]) -> None:
    name = topic("asked", partitions=2)
    produce(
        lab,
        name,
        [
            {"key": b"a", "value": b'{"n": 1}', "partition": 0, "timestamp": 1000},
            {"key": b"\xff", "value": b"\x00\x01", "partition": 0, "timestamp": 2000},
            {"key": None, "value": None, "partition": 0, "timestamp": 3000},
            {
                "key": b"b",
                "value": "caf\u00e9".encode(),
                "partition": 1,
                "timestamp": 4000,
                "headers": [("h", b"x"), ("h", None), ("b", b"\xff")],
            },
        ],
    )
    lab.backup(name)
    produce(lab, name, [{"key": b"a", "value": b"later", "partition": 0, "timestamp": 5000}])
    lab.backup(name)
    sql = (
        "SELECT partition, kafka_offset, ts, time, key, key_hex, value, value_hex, value_json, headers "
        f"FROM records('{name}') ORDER BY partition, kafka_offset"
    )
    found = rows(lab, sql)
    assert [(r["partition"], r["kafka_offset"], r["key"], r["key_hex"], r["value"]) for r in found] == [
        (0, 0, "a", "61", '{"n": 1}'),
        (0, 1, None, "ff", "\x00\x01"),
        (0, 2, None, None, None),
        (0, 3, "a", "61", "later"),
        (1, 0, "b", "62", "caf\u00e9"),
    ]
    assert [r["value_json"] for r in found] == ['{"n": 1}', None, None, None, None]
    assert [r["headers"] for r in found] == ["[]"] * 4 + ['[["h", "x"], ["h", null], ["b", {"hex": "ff"}]]']
    assert found[0]["time"].isoformat() == "1970-01-01T00:00:01"
    by_spark = ask.select_on_spark(lab.spark, CatalogReader(str(lab.folder)), sql).collect()
    assert [row.asDict() for row in by_spark] == found

    lab.backup(name, mode="full")
    assert rows(lab, sql) == found
    assert rows(lab, f"SELECT count(*) AS n FROM records('{name}')") == [{"n": 5}]
    first = rows(lab, "SELECT min(backup_id) AS b FROM backups WHERE kind = 'full'")[0]["b"]
    assert rows(lab, f"SELECT count(*) AS n FROM records('{name}', '{first}')") == [{"n": 4}]
