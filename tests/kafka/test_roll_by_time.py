"""Data files are closed by time as well as by size."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.support.kafka_truth import Record, produce

from lakebackup_jobs.kafka.client import consume
from lakebackup_jobs.kafka.client.consume import copy_range
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.records import TIMESTAMP

if TYPE_CHECKING:
    from tests.support.runs import Lab

    from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka
Topic = Callable[..., str]
T0 = 1_600_000_000_000
HOUR = 3_600_000
YEAR = 365 * 24 * HOUR


def files(bootstrap: str, topic: str, end: int, roll_ms: int | None, start: int = 0) -> list[list[int]]:
    """The timestamps in each file, in hours since T0."""
    sinks: list[io.BytesIO] = []

    def new_file() -> io.BytesIO:
        sinks.append(io.BytesIO())
        return sinks[-1]

    client = {"bootstrap.servers": bootstrap}
    figures = list(copy_range(client, topic, 0, start, end, new_file, roll_ms=roll_ms))
    found = [
        [ts for c in FileReader(io.BytesIO(s.getvalue()), "f") for ts in c.rows[:, TIMESTAMP]] for s in sinks
    ]
    assert [(f.min_ts, f.max_ts, f.entries) for f in figures] == [(min(f), max(f), len(f)) for f in found]
    return [[int((ts - T0) // HOUR) for ts in file] for file in found]


def test_a_file_spans_no_more_than_told(broker: Broker, topic: Topic) -> None:
    name = topic("roll")
    produce(broker.bootstrap, name, [Record(0, None, b"v", (), T0 + h * HOUR) for h in range(12)])
    assert files(broker.bootstrap, name, 12, None) == [list(range(12))]
    assert files(broker.bootstrap, name, 12, 4 * HOUR) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert files(broker.bootstrap, name, 12, 4 * HOUR - 1) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert files(broker.bootstrap, name, 12, 0, start=9) == [[9], [10], [11]]


def test_blocks_that_were_full_before_roll_too(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic("roll-blocks")
    records = [Record(0, None, b"v" * 600_000, (), T0 + h * HOUR) for h in (0, 0, 0, 0, 0, 0, 0, 9, 9, 9)]
    produce(broker.bootstrap, name, records)
    assert files(broker.bootstrap, name, 10, HOUR) == [[0] * 7, [9] * 3]


def test_times_to_and_fro_do_not_make_a_file_of_each_record(broker: Broker, topic: Topic) -> None:
    name = topic("roll-jumps")
    hours = [0, 100] * 50
    produce(broker.bootstrap, name, [Record(0, None, b"v", (), T0 + h * HOUR) for h in hours])
    assert [len(file) for file in files(broker.bootstrap, name, 100, HOUR)] == [1, 99]
    assert [len(file) for file in files(broker.bootstrap, name, 99, HOUR, start=1)] == [98]


def test_there_is_an_end_to_rolling(broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "MOST_ROLLS", 3)
    name = topic("roll-end")
    produce(broker.bootstrap, name, [Record(0, None, b"v", (), T0 + h * HOUR) for h in range(9)])
    assert files(broker.bootstrap, name, 9, 1) == [[0], [1], [2], list(range(3, 9))]


@pytest.mark.spark
def test_a_backup_rolls_by_the_topics_own_retention(lab: Lab, topic: Topic) -> None:
    """A tenth of it; not at all where nothing is deleted by time, and as told where something is told."""
    own = topic("own", **{"retention.ms": str(20 * YEAR)})
    kept, compacted = topic("kept"), topic("compacted", **{"cleanup.policy": "compact"})
    for name in (own, kept, compacted):
        times = (T0, T0 + YEAR, T0 + 2 * YEAR, T0 + 2 * YEAR + 1)
        produce(lab.bootstrap, name, [Record(0, b"k%d" % ts, b"v", (), ts) for ts in times])
    assert lab.backup(own, kept, compacted, groups="none")["files"] == 2 + 1 + 1
    assert lab.backup(own, mode="full", roll_ms=0, groups="none")["files"] == 1
    assert lab.backup(own, kept, mode="full", roll_ms=YEAR, groups="none")["files"] == 4
