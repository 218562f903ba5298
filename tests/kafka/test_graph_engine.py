"""The engine of the tests itself: what it makes of its queues is what its writers did."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.support.graph_engine import Engine
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
