"""Writing back to a real broker: every part of a record, windows, transactions, fencing, progress."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from tests.support.chosen import chosen
from tests.support.kafka_truth import Record, contents, produce

from lakebackup.errors import EnvironmentProblem, LakebackupError, Refused
from lakebackup_jobs.kafka.admin.problems import Fenced
from lakebackup_jobs.kafka.client import consume
from lakebackup_jobs.kafka.client.produce import Progress, RestoreProducer
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.records import TIMESTAMP, Columns, decode_block
from lakebackup_jobs.kafka.format.schemas import SCHEMA_V1, SCHEMA_V2

if TYPE_CHECKING:
    from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka
Topic = Callable[..., str]
NOW = int(time.time() * 1000)
AVRO = fastavro.parse_schema(json.loads(SCHEMA_V2))
NASTY = [
    Record(0, None, b"null key", (), NOW),
    Record(0, b"tombstone", None, (), NOW - 500_000),
    Record(0, None, None, (("only", None),), NOW + 1),
    Record(0, b"", b"", (), NOW - 5),
    Record(0, b"k", b"v", (("a", b"1"), ("a", b"2"), ("b", None), ("a", b""), ("", b"x"), ("é", b"\0")), 1),
    Record(0, b"\xff" * 80, b"B" * 1_000_000, (("big", b"h" * 5000),), NOW + 7),
]


def blocks_of(broker: Broker, name: str, end: int) -> list[Columns]:
    """As a backup reads them from a topic."""
    source = consume.reader({"bootstrap.servers": broker.bootstrap})
    return [block.columns() for block in source.blocks(name, 0, 0, end)]


def blocks_with(records: list[Record]) -> list[Columns]:
    """The same, without a topic: of about a megabyte each."""
    found: list[Columns] = []
    data, count = io.BytesIO(), 0
    for offset, record in enumerate(records):
        row = {
            "topic": "source", "partition": 0, "offset": offset, "timestamp": record.timestamp,
            "timestamp_type": "CREATE_TIME", "key": record.key, "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }  # fmt: skip
        fastavro.schemaless_writer(data, AVRO, row)
        count += 1
        if data.tell() > 1_000_000 or offset == len(records) - 1:
            found.append(decode_block(data.getvalue(), count))
            data, count = io.BytesIO(), 0
    return found


def producer(broker: Broker, name: str, **options: Any) -> RestoreProducer:
    config = {"bootstrap.servers": broker.bootstrap, **options.pop("config", {})}
    return RestoreProducer(config, f"restore-{name}", f"group-{name}", **options)


def restored(
    broker: Broker, target: str, blocks: Iterable[Columns], progress: Progress | None = None, **options: Any
) -> None:
    """What is produced in one transaction."""
    with producer(broker, target, **options) as restore:
        restore.begin()
        for block in blocks:
            restore.produce_block(target, 0, block)
        restore.commit({(target, 0): progress} if progress else {})


def numbered(count: int, size: int = 20) -> list[Record]:
    return [Record(0, b"%d" % i, b"v" * size, (), NOW + i) for i in range(count)]


def test_every_part_of_a_record_survives(broker: Broker, topic: Topic) -> None:
    name = topic("source")
    produce(broker.bootstrap, name, NASTY * 5)
    target = topic("target")
    restored(broker, target, blocks_of(broker, name, 30), Progress(30, "done"))
    assert contents(broker.bootstrap, target) == {0: NASTY * 5}


def test_progress_goes_with_the_records(broker: Broker, topic: Topic) -> None:
    (block,) = blocks_with(numbered(10))
    target = topic("target")
    with producer(broker, target) as restore:
        assert restore.committed(target, 0) is None
        restore.begin()
        restore.produce_block(target, 0, block)
        restore.commit({(target, 0): Progress(10, "run 1: é")})
        restore.begin()
        restore.produce_block(target, 0, block)
        restore.abort()
        assert restore.committed(target, 0) == Progress(10, "run 1: é")
        restore.begin()
        restore.commit({(target, 0): Progress(11, "")})
        assert restore.committed(target, 0) == Progress(11, "")
    assert contents(broker.bootstrap, target) == {0: numbered(10)}


def test_what_is_there_already_is_not_before_where_it_begins(broker: Broker, topic: Topic) -> None:
    name = topic("begins")
    there = [Record(0, b"k", b"v", (), NOW)] * 5
    produce(broker.bootstrap, name, there)
    (columns,) = blocks_of(broker, name, 5)
    with producer(broker, name) as first:
        assert first.resume(name, 0) is None
        assert first.begins((name, 0)) == 5
        first.begin()
        first.produce_block(name, 0, columns)
        first.commit({})  # what went with it is lost
    with producer(broker, name) as second:
        assert second.resume(name, 0) == Progress(0, "")
        assert second.begins((name, 0)) == 5


def test_leaving_with_an_error_aborts(broker: Broker, topic: Topic) -> None:
    (block,) = blocks_with(numbered(10))
    target = topic("target")
    restore = producer(broker, target)
    restore.begin()
    restore.produce_block(target, 0, block)
    restore.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert contents(broker.bootstrap, target) == {}


def test_the_next_producer_fences_the_last(broker: Broker, topic: Topic) -> None:
    (block,) = blocks_with(numbered(10))
    target = topic("target")
    with producer(broker, target) as zombie:
        zombie.begin()
        zombie.produce_block(target, 0, block)
        with producer(broker, target) as restore:
            assert restore.committed(target, 0) is None
            restore.begin()
            restore.produce_block(target, 0, block)
            restore.commit({(target, 0): Progress(10, "second")})
        with pytest.raises(Fenced):
            zombie.commit({(target, 0): Progress(10, "first")})
    assert contents(broker.bootstrap, target) == {0: numbered(10)}


LARGE, FULL = (40, 1_000_000, {}), (5000, 1000, {"queue.buffering.max.kbytes": "256"})


@pytest.mark.parametrize(
    ("count", "size", "config"), chosen([(3000, 10_000, {}), LARGE, FULL], [LARGE, FULL])
)
def test_large_messages_need_no_settings_and_a_full_queue_is_waited_for(
    broker: Broker, topic: Topic, count: int, size: int, config: dict[str, str]
) -> None:
    target = topic("target")
    restored(broker, target, blocks_with(numbered(count, size)), config=config)
    assert contents(broker.bootstrap, target) == {0: numbered(count, size)}


def test_a_record_the_topic_refuses_is_named(broker: Broker, topic: Topic) -> None:
    (block,) = blocks_with(numbered(3, 200_000))
    target = topic("target", **{"max.message.bytes": "1000"})
    with producer(broker, target) as restore:
        restore.begin()
        restore.produce_block(target, 0, block)
        with pytest.raises(LakebackupError, match="too large"):
            restore.commit({})
    assert contents(broker.bootstrap, target) == {}


def test_timestamp_zero_is_refused_or_moved(broker: Broker, topic: Topic) -> None:
    target = topic("target", **{"retention.ms": "-1"})
    block = with_timestamps([0, 5])
    with producer(broker, target) as restore:
        restore.begin()
        with pytest.raises(Refused, match="offset 0 has timestamp 0"):
            restore.produce_block(target, 0, block)
    restored(broker, target, [block], zero_as_one=True)
    assert [record.timestamp for record in contents(broker.bootstrap, target)[0]] == [1, 5]


def with_timestamps(stamps: list[int]) -> Columns:
    (block,) = blocks_with(numbered(len(stamps)))
    rows = block.rows.copy()
    rows[:, TIMESTAMP] = stamps
    return Columns(block.data, rows, block.fmt)


def test_a_missing_timestamp_is_left_to_the_client(broker: Broker, topic: Topic) -> None:
    target = topic("target")
    restored(broker, target, [with_timestamps([-1])])
    (record,) = contents(broker.bootstrap, target)[0]
    assert NOW <= record.timestamp <= int(time.time() * 1000) + 1000


def test_version_1_files(broker: Broker, topic: Topic) -> None:
    target = topic("target")
    rows = [
        {"topic": "t", "partition": 0, "offset": 5, "timestamp": NOW, "key": None, "value": b"", "headers":
        None},
        {
            "topic": "t",
            "partition": 0,
            "offset": 9,
            "timestamp": NOW - 1,
            "key": b"",
            "value": b"v",
            "headers": {"a": b"1", "b": b""},
        },
    ]  # fmt: skip
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(json.loads(SCHEMA_V1)), rows)
    file.seek(0)
    restored(broker, target, FileReader(file, "v1"))
    assert contents(broker.bootstrap, target) == {
        0: [Record(0, None, b"", (), NOW), Record(0, b"", b"v", (("a", b"1"), ("b", b"")), NOW - 1)]
    }


def test_no_broker_ends_after_the_patience() -> None:
    began = time.monotonic()
    with pytest.raises(EnvironmentProblem):
        RestoreProducer({"bootstrap.servers": "127.0.0.1:1"}, "t", "g", patience=1)
    assert time.monotonic() - began < 15
