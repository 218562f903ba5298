"""Records with times of no calendar, headers and keys of every kind, and names with dots, all the way."""

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

Make = Callable[..., str]
NOW = int(time.time() * 1000)
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
#: Milliseconds: none, before 1970, 1970, microseconds, behind the last year that a calendar has, now.
TIMES = [-1, -7, 1, NOW * 1000, YEAR_10000, NOW, NOW + 1]
FUTURE = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def odd_rows() -> list[Row]:
    """Timestamp, key, value and headers. The first key comes twice, as does the empty one."""
    keys = [b"", None, b"\xff\xfe", b"k", b"", b"k", b"last"]
    values = [b"v0", b"v1", b"", b"v3", None, b"\xff", b"v6"]
    return [(ts, keys[i], values[i], HEADERS[i % len(HEADERS)]) for i, ts in enumerate(TIMES)]


def send(
    broker: Broker, topic: str, rows: list[tuple[int, bytes | None, bytes | None, list[Header]]]
) -> None:
    """Write records whose headers have names of any bytes, which Python's client cannot."""
    data = b""
    for offset, (ts, key, value, headers) in enumerate(rows):
        record = encode_record("t", 0, offset, ts, 0, key, value, [("N" * len(n), v) for n, v in headers])
        for name, _ in headers:
            record = record.replace(b"N" * len(name), name, 1)
        data += record
    with RestoreProducer(
        {"bootstrap.servers": broker.bootstrap}, f"restore-{topic}", f"group-{topic}"
    ) as producer:
        producer.begin()
        producer.produce_block(topic, 0, decode_block(data, len(rows)))
        producer.commit({})


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"a\0b", b"\0"])
def test_a_header_whose_name_is_not_text_is_refused_by_its_offset(
    broker: Broker, topic: Make, name: bytes
) -> None:
    odd = topic("names")
    good = [(NOW, b"k", b"v", headers) for headers in HEADERS]
    send(broker, odd, [*good, (NOW, b"k", b"v", [(b"a", b"1"), (name, b"2"), (b"", None)])])

    def copied(end: int) -> list[Record]:
        sink = io.BytesIO()
        list(copy_range({"bootstrap.servers": broker.bootstrap}, odd, 0, 0, end, lambda: sink))
        return [record for _, record in truth.records_in(sink.getvalue())]

    assert [r.headers for r in copied(len(good))] == [
        tuple((n.decode(), v) for n, v in headers) for headers in HEADERS
    ]
    with pytest.raises(Refused, match=rf"{odd}, partition 0, offset {len(good)}: the name of a header"):
        copied(len(good) + 1)


@pytest.mark.long
@pytest.mark.spark
def test_odd_records_come_back_under_another_name(lab: Lab, broker: Broker, topic: Make) -> None:
    name, keyed, copy = (topic(prefix, **FUTURE) for prefix in ("orders..retry", "orders..keyed", "..copy"))
    source = "a..b"
    send(broker, name, odd_rows())
    send(broker, keyed, [row for row in odd_rows() if row[1] is not None])
    before = truth.contents(broker.bootstrap, name)
    assert [r.timestamp for r in before[0]] == TIMES
    done = lab.backup(patterns=(r"orders\.\..*",), source=source)
    assert (done["entries"], done["gaps"]) == (2 * len(TIMES) - 1, 0)

    # A query of a person gets the times that its calendar has, and all as numbers.
    with lakebackup.connect(str(lab.folder)) as connection:
        rows = connection.sql(f"SELECT ts, time, headers FROM records('{name}') ORDER BY kafka_offset").rows()
    assert [row["ts"] for row in rows] == TIMES
    assert json.loads(rows[1]["headers"]) == [["a", None], ["a", ""], ["a", "1"]]
    assert json.loads(rows[3]["headers"]) == [["traceparent", {"hex": "ff0080"}]]
    for view, column in (("coverage", "to_ts"), ("rpo", "restorable_ts")):
        seen = {row[column] for row in lab.sql(f"SELECT {column} FROM {view}")}
        assert seen == {done["end_ts"]}, view

    lab.restore(name, maps={name: copy})
    assert truth.contents(broker.bootstrap, copy) == before
    lab.restore(name, maps={name: copy}, append=True, to_ts=done["end_ts"])
    past = [r for r in before[0] if r.timestamp <= done["end_ts"]]
    assert truth.contents(broker.bootstrap, copy) == {0: before[0] + past}


@pytest.mark.spark
@pytest.mark.long
def test_odd_records_come_through_a_select_a_merge_a_prune_and_a_compaction(
    lab: Lab, broker: Broker, topic: Make
) -> None:
    name = topic("odd", **FUTURE)
    rows: list[Row] = [
        (ts, b"k%d" % i, value, headers) for i, (ts, _, value, headers) in enumerate(odd_rows())
    ]
    for part in (rows[:4], rows[4:]):
        send(broker, name, part)
        lab.backup(name)
    before = truth.contents(broker.bootstrap, name)
    assert [r.timestamp for r in before[0]] == TIMES

    def restored(**how: Any) -> dict[int, list[Record]]:
        copy = topic("odd-copy", **FUTURE)
        lab.restore(**({"topics": (name,)} | how), maps={name: copy})
        return truth.contents(broker.bootstrap, copy)

    assert (
        restored(topics=(), records=f"SELECT partition, key, value, headers, ts FROM records('{name}')")
        == before
    )
    assert lab.merge(1)["backup_id"]
    assert lab.prune()["backups"]
    assert restored() == before
    assert lab.compact(name, all_keyed=True)["backup_ids"]
    assert [r for r in restored()[0] if r.value is not None] == [r for r in before[0] if r.value is not None]
