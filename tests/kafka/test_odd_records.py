"""Backs up and restores odd records: times outside any calendar, unusual headers and keys, dotted names."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import Lab

import lakebackup
from lakebackup.errors import Refused
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.client.consume import copy_range
from lakebackup_jobs.kafka.client.produce import RestoreProducer
from lakebackup_jobs.kafka.format.records import decode_block, encode_record

pytestmark = pytest.mark.kafka

MakeTopic = Callable[..., str]
NOW_MS = int(time.time() * 1000)
YEAR_10000 = 253_402_300_800_000
Header = tuple[bytes, bytes | None]
Row = tuple[int, bytes | None, bytes | None, list[Header]]
HEADERS: list[list[Header]] = [
    [(b"", b"x")],
    [(b"a", None), (b"a", b""), (b"a", b"1")],
    [("ü€😀".encode(), "ü".encode())],
    [(b"traceparent", bytes([255, 0, 128]))],
    [],
]
#: In ms: no time, before 1970, in 1970, microseconds by mistake, after the calendar's last year, and now.
TIMES = [-1, -7, 1, NOW_MS * 1000, YEAR_10000, NOW_MS, NOW_MS + 1]
FUTURE = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def odd_rows() -> list[Row]:
    """Rows of timestamp, key, value and headers. The keys `b""` and `b"k"` occur twice."""
    keys = [b"", None, b"\xff\xfe", b"k", b"", b"k", b"last"]
    values = [b"v0", b"v1", b"", b"v3", None, b"\xff", b"v6"]
    return [(ts, keys[i], values[i], HEADERS[i % len(HEADERS)]) for i, ts in enumerate(TIMES)]


def send(
    broker: Broker, topic: str, rows: list[tuple[int, bytes | None, bytes | None, list[Header]]]
) -> None:
    """Write records whose headers have any bytes as names. Python's Kafka client cannot write these."""
    block_data = b""
    for offset, (ts, key, value, headers) in enumerate(rows):
        record = encode_record("t", 0, offset, ts, 0, key, value, [("N" * len(n), v) for n, v in headers])
        for name, _ in headers:
            record = record.replace(b"N" * len(name), name, 1)
        block_data += record
    with RestoreProducer(
        {"bootstrap.servers": broker.bootstrap}, f"restore-{topic}", f"group-{topic}"
    ) as producer:
        producer.begin()
        producer.produce_block(topic, 0, decode_block(block_data, len(rows)))
        producer.commit({})


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"a\0b", b"\0"])
def test_a_header_whose_name_is_not_text_is_refused_by_its_offset(
    broker: Broker, topic: MakeTopic, name: bytes
) -> None:
    topic_name = topic("names")
    good_rows = [(NOW_MS, b"k", b"v", headers) for headers in HEADERS]
    send(broker, topic_name, [*good_rows, (NOW_MS, b"k", b"v", [(b"a", b"1"), (name, b"2"), (b"", None)])])

    def copy_records(end: int) -> list[Record]:
        sink = io.BytesIO()
        list(copy_range({"bootstrap.servers": broker.bootstrap}, topic_name, 0, 0, end, lambda: sink))
        return [record for _, record in truth.records_in(sink.getvalue())]

    assert [r.headers for r in copy_records(len(good_rows))] == [
        tuple((n.decode(), v) for n, v in headers) for headers in HEADERS
    ]
    with pytest.raises(
        Refused, match=rf"{topic_name}, partition 0, offset {len(good_rows)}: the name of a header"
    ):
        copy_records(len(good_rows) + 1)


@pytest.mark.long
@pytest.mark.spark
def test_odd_records_are_restored_into_another_topic(lab: Lab, broker: Broker, topic: MakeTopic) -> None:
    name, keyed_topic, copy_topic = (
        topic(prefix, **FUTURE) for prefix in ("orders..retry", "orders..keyed", "..copy")
    )
    source = "a..b"
    send(broker, name, odd_rows())
    send(broker, keyed_topic, [row for row in odd_rows() if row[1] is not None])
    records = truth.contents(broker.bootstrap, name)
    assert [r.timestamp for r in records[0]] == TIMES
    backup = lab.backup(patterns=(r"orders\.\..*",), source=source)
    assert (backup["entries"], backup["gaps"]) == (2 * len(TIMES) - 1, 0)

    # A query returns every time as a number, `ts`. Its `time` has only those within the calendar.
    with lakebackup.connect(str(lab.folder)) as connection:
        rows = connection.sql(f"SELECT ts, time, headers FROM records('{name}') ORDER BY kafka_offset").rows()
    assert [row["ts"] for row in rows] == TIMES
    assert json.loads(rows[1]["headers"]) == [["a", None], ["a", ""], ["a", "1"]]
    assert json.loads(rows[3]["headers"]) == [["traceparent", {"hex": "ff0080"}]]
    for view, column in (("coverage", "to_ts"), ("rpo", "restorable_ts")):
        column_values = {row[column] for row in lab.sql(f"SELECT {column} FROM {view}")}
        assert column_values == {backup["end_ts"]}, view

    lab.restore(name, maps={name: copy_topic})
    assert truth.contents(broker.bootstrap, copy_topic) == records
    lab.restore(name, maps={name: copy_topic}, append=True, to_ts=backup["end_ts"])
    past_records = [r for r in records[0] if r.timestamp <= backup["end_ts"]]
    assert truth.contents(broker.bootstrap, copy_topic) == {0: records[0] + past_records}


@pytest.mark.spark
@pytest.mark.long
def test_odd_records_survive_a_select_a_merge_a_prune_and_a_compaction(
    lab: Lab, broker: Broker, topic: MakeTopic
) -> None:
    name = topic("odd", **FUTURE)
    rows: list[Row] = [
        (ts, b"k%d" % i, value, headers) for i, (ts, _, value, headers) in enumerate(odd_rows())
    ]
    for batch in (rows[:4], rows[4:]):
        send(broker, name, batch)
        lab.backup(name)
    records = truth.contents(broker.bootstrap, name)
    assert [r.timestamp for r in records[0]] == TIMES

    def restore_records(**options: Any) -> dict[int, list[Record]]:
        copy_topic = topic("odd-copy", **FUTURE)
        lab.restore(**({"topics": (name,)} | options), maps={name: copy_topic})
        return truth.contents(broker.bootstrap, copy_topic)

    assert (
        restore_records(
            topics=(), records=f"SELECT partition, key, value, headers, ts FROM records('{name}')"
        )
        == records
    )
    assert lab.merge(1)["backup_id"]
    assert lab.prune()["backups"]
    assert restore_records() == records
    assert lab.compact(name, all_keyed=True)["backup_ids"]
    assert [r for r in restore_records()[0] if r.value is not None] == [
        r for r in records[0] if r.value is not None
    ]
