"""The engine of the tests itself: what it makes of its queues is what its writers did."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.support import kafka_truth as truth
from tests.support.graph_engine import Engine
from tests.support.graph_story import some_writes
from tests.support.graph_writers import Files, Op, Queues, Writers, kept, open_at, state_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka


@pytest.fixture
def writers(broker: Broker, tmp_path: Path) -> Iterator[Writers]:
    mark = uuid4().hex[:8]
    queues = Queues(broker.bootstrap, {f"delta.{mark}": 3}, {f"journal.{mark}": 1})
    queues.create()
    files = Files(tmp_path / "files")
    files.begin()
    yield Writers(queues, files)
    queues.delete()


def test_what_is_open_shows_only_when_it_is_done() -> None:
    ops = [
        Op(1, "write", None, "a", {"name": "x"}),
        Op(2, "begin", "t"),
        Op(3, "write", "t", "a", None),
        Op(4, "write", None, "n", 2),
        Op(5, "write", "u", "n", 40),
        Op(6, "commit", "t"),
        Op(7, "rollback", "u"),
    ]
    assert [state_at(ops, tid) for tid in (0, 3, 5, 6, 7)] == [
        {}, {"a": {"name": "x"}}, {"a": {"name": "x"}, "n": 2}, {"n": 2}, {"n": 2},
    ]  # fmt: skip
    assert (open_at(ops, 5), open_at(ops, 6), open_at(ops, 7)) == ({"t", "u"}, {"u"}, set())
    assert [op.tid for op in kept(ops, 6)] == [1, 2, 3, 4, 6]
    assert [op.tid for op in kept(ops, 6, keep_open=True)] == [1, 2, 3, 4, 5, 6]


def test_it_is_at_every_tid_what_the_writers_did(writers: Writers, tmp_path: Path) -> None:
    dice = random.Random(1)
    engine = Engine(writers.queues, tmp_path / "db", writers.files)
    for _ in range(3):
        some_writes(writers, dice, 60)
        for tid, state in engine.play():
            assert state == state_at(writers.ops, tid)
    assert set(engine.open) == open_at(writers.ops, writers.tid)
    assert engine.state() == state_at(writers.ops)
    assert len({op.kind for op in writers.ops}) == 5
    engine.close()


def test_a_snapshot_goes_on_where_it_stands(writers: Writers, tmp_path: Path) -> None:
    dice = random.Random(2)
    engine = Engine(writers.queues, tmp_path / "db", writers.files)
    some_writes(writers, dice, 80)
    engine.run(60)
    assert engine.state() == state_at(writers.ops, 60)
    engine.snapshot(tmp_path / "s")
    said = json.loads((tmp_path / "s" / "snapshot.json").read_text())
    assert said["last_tid"] in (59, 60)  # DDL has no message
    open_then = open_at(writers.ops, 60)
    assert open_then
    before, after = {}, {}
    for place in said["queues"]:
        at = place["topic"], place["partition"]
        rows = [
            (offset, int(dict(r.headers)["tid"] or 0), dict(r.headers).get("transaction"))
            for offset, r in truth.read(writers.queues.bootstrap, at[0])
            if r.partition == at[1]
        ]
        before[at] = [tid for offset, tid, _ in rows if offset < place["position"]]
        after[at] = [tid for offset, tid, _ in rows if offset >= place["position"]]
        first = [offset for offset, tid, t in rows if t and t.decode() in open_then and tid <= 60]
        assert place["max_no_transaction_pos"] == min([place["position"], *first])
    assert max(tid for found in before.values() for tid in found) == said["last_tid"]
    assert min(tid for found in after.values() for tid in found) > 60
    engine.run()
    assert engine.state() == state_at(writers.ops)
    engine.close()
    shutil.rmtree(tmp_path / "db")


def test_it_takes_nothing_twice_nor_in_another_order(writers: Writers, tmp_path: Path) -> None:
    writers.write("v:1", 1)
    writers.flush()
    topic, partition = writers.queues.place("v:1")
    producer = Producer({"bootstrap.servers": writers.queues.bootstrap})
    producer.produce(topic, b"1", b"v:1", partition, headers=[("tid", b"1")])
    assert producer.flush(30) == 0
    engine = Engine(writers.queues, tmp_path / "db", writers.files)
    with pytest.raises(AssertionError, match="behind 1"):
        engine.run()
    engine.close()
