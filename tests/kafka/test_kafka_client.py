"""Reads ranges of offsets from a real broker, and writes them back.

The tests check every part of a record, the ends of ranges, when a new file begins (rolling), the restore's
transactions, and errors.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import fastavro
import pytest
from tests.support.chosen import mark_long
from tests.support.kafka_truth import (
    Record,
    contents,
    delete_records,
    delete_topic,
    produce,
    read,
    records_in,
)

from lakebackup.errors import EnvironmentProblem, LakebackupError, NotFound, Refused
from lakebackup.plan.partitions import BackupRows, RegionState
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.admin.problems import Fenced, Purged
from lakebackup_jobs.kafka.client import consume
from lakebackup_jobs.kafka.client.consume import copy_range
from lakebackup_jobs.kafka.client.produce import Progress, RestoreProducer
from lakebackup_jobs.kafka.format.arrow import to_arrow
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.key_filter import KeyFilter, _hashes
from lakebackup_jobs.kafka.format.records import TIMESTAMP, Columns, FileStats, decode_block
from lakebackup_jobs.kafka.format.schemas import SCHEMA_V1, SCHEMA_V2

pytestmark = pytest.mark.kafka


MakeTopic = Callable[..., str]
BIG_VALUE = os.urandom(1_000_000)
# Retention would delete records of an older day within seconds.
NOW_MS = int(time.time() * 1000)

EDGE_RECORDS = [
    Record(0, None, b"null key", (), NOW_MS),
    Record(0, b"tombstone", None, (), NOW_MS + 5),
    Record(0, None, None, (), NOW_MS - 100_000),
    Record(0, b"", b"", (), NOW_MS - 5),
    Record(
        0, b"k" * 64, b"v", (("a", b"1"), ("a", b"2"), ("b", None), ("a", b""), ("", b"x"), ("é", b"\0")), 1
    ),
    Record(0, b"\xff" * 80, BIG_VALUE, (("big", BIG_VALUE[:5000]),), NOW_MS + 7),
    Record(0, b"k" * 65, b"v" * 10_000, (), NOW_MS),
]


CODECS = ("null", "deflate", "snappy", "zstandard")


def copy(
    bootstrap: str, topic: str, start: int, end: int, partition: int = 0, **options: Any
) -> tuple[list[bytes], list[FileStats]]:
    """Copy a range of offsets. Returns the content of each file, and its figures."""
    sinks: list[io.BytesIO] = []

    def new_file() -> io.BytesIO:
        sinks.append(io.BytesIO())
        return sinks[-1]

    config = {"bootstrap.servers": bootstrap, **options.pop("config", {})}
    figures = list(copy_range(config, topic, partition, start, end, new_file, **options))
    assert len(sinks) == len(figures)
    return [sink.getvalue() for sink in sinks], figures


def by_fastavro(file: bytes) -> list[tuple[int, Record, str]]:
    kinds: Any = [row["timestamp_type"] for row in fastavro.reader(io.BytesIO(file))]
    return [(*pair, kind) for pair, kind in zip(records_in(file), kinds, strict=True)]


def truth(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[tuple[int, Record]]:
    return sorted(read(bootstrap, topic, isolation), key=lambda pair: pair[0])


def check_figures(file: bytes, figures: FileStats) -> None:
    """Compare a file's figures with what fastavro reads from it."""
    rows = by_fastavro(file)
    keys = sorted(record.key for _, record, _ in rows if record.key is not None)
    assert figures.bytes == len(file)
    assert figures.sha256 == hashlib.sha256(file).hexdigest()
    assert figures.entries == len(rows)
    assert figures.start_position == rows[0][0]
    assert figures.end_position == rows[-1][0] + 1
    assert figures.min_ts == min(record.timestamp for _, record, _ in rows)
    assert figures.max_ts == max(record.timestamp for _, record, _ in rows)
    assert figures.null_keys == len(rows) - len(keys)
    assert figures.tombstones == sum(record.value is None for _, record, _ in rows)
    assert figures.raw_bytes == sum(c.data.shape[0] for c in FileReader(io.BytesIO(file), "f"))
    if keys:
        assert figures.start_key == keys[0][:64].hex()
        if figures.end_key is not None:
            assert all(key.hex() <= figures.end_key or key[:64].hex() < figures.end_key for key in keys)
        else:
            assert keys[-1][:64] == b"\xff" * 64
    else:
        assert figures.start_key is figures.end_key is None
    key_filter = KeyFilter()
    key_filter.add(_hashes(tuple(keys)))
    assert figures.keys == key_filter.sealed(figures.sha256)


@pytest.mark.parametrize("codec", mark_long(CODECS, ["zstandard"]))
def test_every_part_of_a_record_survives(broker: Broker, topic: MakeTopic, codec: str) -> None:
    name = topic("nasty")
    produce(broker.bootstrap, name, EDGE_RECORDS * 12)
    files, figures = copy(
        broker.bootstrap, name, 0, len(EDGE_RECORDS) * 12, codec=codec, target_bytes=4_000_000
    )
    rows = [row for file in files for row in by_fastavro(file)]
    assert [(offset, record) for offset, record, _ in rows] == truth(broker.bootstrap, name)
    assert {kind for _, _, kind in rows} == {"CREATE_TIME"}
    assert len(files) > 1
    for file, file_figures in zip(files, figures, strict=True):
        check_figures(file, file_figures)
        file_rows = [
            row for columns in FileReader(io.BytesIO(file), "f") for row in to_arrow(columns).to_pylist()
        ]
        assert file_rows == list(fastavro.reader(io.BytesIO(file)))
        assert {row["topic"] for row in file_rows} == {name}


def test_adjacent_ranges_do_not_overlap(broker: Broker, topic: MakeTopic) -> None:
    name = topic("ranges")
    produce(broker.bootstrap, name, [Record(0, b"%d" % i, b"x" * 50, (), NOW_MS + i) for i in range(1000)])
    offsets = []
    for start, end in ((0, 1), (1, 500), (500, 500), (500, 1000)):
        files, _ = copy(broker.bootstrap, name, start, end)
        offsets += [offset for file in files for offset, _, _ in by_fastavro(file)]
    assert offsets == list(range(1000))


def transaction(bootstrap: str, name: str, values: list[bytes], *, commit: bool) -> None:
    records = [Record(0, None, value, (), NOW_MS) for value in values]
    produce(bootstrap, name, records, commit=commit, **{"transactional.id": f"tx-{name}"})


def test_records_of_aborted_transactions_are_skipped(broker: Broker, topic: MakeTopic) -> None:
    name = topic("aborted")
    transaction(broker.bootstrap, name, [b"a"] * 10, commit=False)
    transaction(broker.bootstrap, name, [b"b"] * 10, commit=True)
    transaction(broker.bootstrap, name, [b"c"] * 10, commit=False)
    end = 33
    files, figures = copy(broker.bootstrap, name, 0, end)
    assert [record.value for _, record, _ in by_fastavro(files[0])] == [b"b"] * 10
    assert (figures[0].start_position, figures[0].end_position) == (11, 21)
    assert copy(broker.bootstrap, name, 22, end) == ([], []), "a range of nothing but holes"
    files, _ = copy(broker.bootstrap, name, 0, end, isolation="read_uncommitted")
    assert [(offset, record) for offset, record, _ in by_fastavro(files[0])] == truth(
        broker.bootstrap, name, "read_uncommitted"
    )


def test_a_range_ends_although_others_write(broker: Broker, topic: MakeTopic) -> None:
    name = topic("busy")
    transaction(broker.bootstrap, name, [b"a"] * 5, commit=False)
    produce(broker.bootstrap, name, [Record(0, None, b"later", (), NOW_MS)] * 50)
    assert copy(broker.bootstrap, name, 0, 6) == ([], [])


def test_log_append_time_is_recorded(broker: Broker, topic: MakeTopic) -> None:
    name = topic("append", **{"message.timestamp.type": "LogAppendTime"})
    produce(broker.bootstrap, name, [Record(0, b"k", b"v", (), NOW_MS)])
    files, _ = copy(broker.bootstrap, name, 0, 1)
    (_, record, kind) = by_fastavro(files[0])[0]
    assert kind == "LOG_APPEND_TIME"
    assert record == truth(broker.bootstrap, name)[0][1]
    assert record.timestamp != NOW_MS


def test_compressed_batches_are_read(broker: Broker, topic: MakeTopic) -> None:
    name = topic("zipped")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        records = [Record(0, codec.encode(), b"v" * 500, (("h", b"1"),), NOW_MS + i) for i in range(50)]
        produce(broker.bootstrap, name, records, **{"compression.type": codec})
    files, _ = copy(broker.bootstrap, name, 0, 200)
    assert [(offset, record) for offset, record, _ in by_fastavro(files[0])] == truth(broker.bootstrap, name)


def test_progress_counts_every_record_and_byte(broker: Broker, topic: MakeTopic) -> None:
    name = topic("progress")
    produce(broker.bootstrap, name, [Record(0, None, os.urandom(1000), (), NOW_MS)] * 9000)
    steps: list[tuple[int, int]] = []
    _, figures = copy(
        broker.bootstrap, name, 0, 9000, on_progress=lambda records, size: steps.append((records, size))
    )
    assert sum(records for records, _ in steps) == 9000
    assert sum(size for _, size in steps) == sum(file_figures.raw_bytes for file_figures in figures)


def test_the_bytes_of_new_records_are_counted_up_to_a_limit(broker: Broker, topic: MakeTopic) -> None:
    name = topic("measured")
    produce(broker.bootstrap, name, [Record(0, None, os.urandom(1000), (), NOW_MS)] * 100)
    _, figures = copy(broker.bootstrap, name, 10, 100)
    config, size = (
        {"bootstrap.servers": broker.bootstrap},
        sum(file_figures.raw_bytes for file_figures in figures),
    )
    (topic_state,) = Cluster(config).describe([name])
    rows = BackupRows("b", "lab", NOW_MS)
    positions = [
        rows.position(
            RegionState(name, topic_state.epoch, "0", low=0, end=100, high=100, leader_epoch=None), 10, 100
        )
    ]
    assert consume.bytes_of(config, "read_committed", positions, size) == size
    assert consume.bytes_of(config, "read_committed", positions, size - 1) is None
    # So many offsets exceed the limit without a read.
    assert consume.bytes_of({}, "read_committed", positions, 90 * consume.BYTES_A_HASH - 1) is None


def test_purged_records_raise_their_own_error(broker: Broker, topic: MakeTopic) -> None:
    name = topic("purged")
    produce(broker.bootstrap, name, [Record(0, None, b"x", (), NOW_MS)] * 100)
    delete_records(broker.bootstrap, name, {0: 50})
    with pytest.raises(Purged, match=rf"{name}\[0\].*offset 10"):
        copy(broker.bootstrap, name, 10, 100)
    files, _ = copy(broker.bootstrap, name, 50, 100)
    assert len(by_fastavro(files[0])) == 50


def test_a_deleted_topic_is_not_found(broker: Broker, topic: MakeTopic) -> None:
    name = topic("gone")
    produce(broker.bootstrap, name, [Record(0, None, b"x", (), NOW_MS)])
    delete_topic(broker.bootstrap, name)
    with pytest.raises(NotFound, match=name):
        copy(broker.bootstrap, name, 0, 1, patience=8)


def test_reading_without_a_broker_fails_after_the_patience() -> None:
    start = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=r"t\[3\] at offset 7: nothing came for 1 s"):
        copy("127.0.0.1:1", "t", 7, 9, partition=3, patience=1)
    assert time.monotonic() - start < 10


def test_a_reader_can_be_used_again_after_a_read_is_cancelled(broker: Broker, topic: MakeTopic) -> None:
    name = topic("early")
    produce(broker.bootstrap, name, [Record(0, None, os.urandom(10_000), (), NOW_MS)] * 2000)
    reader = consume.reader({"bootstrap.servers": broker.bootstrap})
    blocks = reader.blocks(name, 0, 0, 2000)
    assert next(iter(blocks)).stats.start_position == 0
    blocks.close()
    assert sum(block.stats.entries for block in reader.blocks(name, 0, 0, 2000)) == 2000


START_MS, HOUR_MS = 1_600_000_000_000, 3_600_000


def rolled(bootstrap: str, topic: str, end: int, roll_ms: int | None, start: int = 0) -> list[list[int]]:
    """Copy a range. Returns the timestamps in each file, in hours since START_MS."""
    files, figures = copy(bootstrap, topic, start, end, roll_ms=roll_ms)
    timestamps = [
        [ts for columns in FileReader(io.BytesIO(f), "f") for ts in columns.rows[:, TIMESTAMP]] for f in files
    ]
    assert [(f.min_ts, f.max_ts, f.entries) for f in figures] == [
        (min(f), max(f), len(f)) for f in timestamps
    ]
    return [[int((ts - START_MS) // HOUR_MS) for ts in file] for file in timestamps]


def test_a_file_spans_at_most_the_roll_time(broker: Broker, topic: MakeTopic) -> None:
    name = topic("roll")
    produce(
        broker.bootstrap, name, [Record(0, None, b"v", (), START_MS + hour * HOUR_MS) for hour in range(12)]
    )
    assert rolled(broker.bootstrap, name, 12, None) == [list(range(12))]
    assert rolled(broker.bootstrap, name, 12, 4 * HOUR_MS) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert rolled(broker.bootstrap, name, 12, 4 * HOUR_MS - 1) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert rolled(broker.bootstrap, name, 12, 0, start=9) == [[9], [10], [11]]


def test_full_blocks_roll_too(broker: Broker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic("roll-blocks")
    records = [
        Record(0, None, b"v" * 600_000, (), START_MS + hour * HOUR_MS)
        for hour in (0, 0, 0, 0, 0, 0, 0, 9, 9, 9)
    ]
    produce(broker.bootstrap, name, records)
    assert rolled(broker.bootstrap, name, 10, HOUR_MS) == [[0] * 7, [9] * 3]


def test_alternating_times_do_not_make_a_file_for_each_record(broker: Broker, topic: MakeTopic) -> None:
    name = topic("roll-jumps")
    hours = [0, 100] * 50
    produce(broker.bootstrap, name, [Record(0, None, b"v", (), START_MS + hour * HOUR_MS) for hour in hours])
    assert [len(file) for file in rolled(broker.bootstrap, name, 100, HOUR_MS)] == [1, 99]
    assert [len(file) for file in rolled(broker.bootstrap, name, 99, HOUR_MS, start=1)] == [98]


def test_rolling_stops_at_a_limit(broker: Broker, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "MOST_ROLLS", 3)
    name = topic("roll-end")
    produce(
        broker.bootstrap, name, [Record(0, None, b"v", (), START_MS + hour * HOUR_MS) for hour in range(9)]
    )
    assert rolled(broker.bootstrap, name, 9, 1) == [[0], [1], [2], list(range(3, 9))]


AVRO = fastavro.parse_schema(json.loads(SCHEMA_V2))


def blocks_of(broker: Broker, name: str, end: int) -> list[Columns]:
    """The blocks of a topic, as a backup reads them."""
    reader = consume.reader({"bootstrap.servers": broker.bootstrap})
    return [block.columns() for block in reader.blocks(name, 0, 0, end)]


def blocks_with(records: list[Record]) -> list[Columns]:
    """Blocks of about a megabyte each with these records, made without a topic."""
    blocks: list[Columns] = []
    block_data, count = io.BytesIO(), 0
    for offset, record in enumerate(records):
        row = {
            "topic": "source", "partition": 0, "offset": offset, "timestamp": record.timestamp,
            "timestamp_type": "CREATE_TIME", "key": record.key, "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }  # fmt: skip
        fastavro.schemaless_writer(block_data, AVRO, row)
        count += 1
        if block_data.tell() > 1_000_000 or offset == len(records) - 1:
            blocks.append(decode_block(block_data.getvalue(), count))
            block_data, count = io.BytesIO(), 0
    return blocks


def producer(broker: Broker, name: str, **options: Any) -> RestoreProducer:
    config = {"bootstrap.servers": broker.bootstrap, **options.pop("config", {})}
    return RestoreProducer(config, f"restore-{name}", f"group-{name}", **options)


def write_blocks(
    broker: Broker, target: str, blocks: Iterable[Columns], progress: Progress | None = None, **options: Any
) -> None:
    """Write blocks to partition 0 of a topic in one transaction."""
    with producer(broker, target, **options) as restore:
        restore.begin()
        for block in blocks:
            restore.produce_block(target, 0, block)
        restore.commit({(target, 0): progress} if progress else {})


def numbered_records(count: int, size: int = 20) -> list[Record]:
    return [Record(0, b"%d" % i, b"v" * size, (), NOW_MS + i) for i in range(count)]


def test_every_part_of_a_record_is_written_back(broker: Broker, topic: MakeTopic) -> None:
    name = topic("source")
    produce(broker.bootstrap, name, EDGE_RECORDS * 5)
    target = topic("target")
    write_blocks(
        broker,
        target,
        blocks_of(broker, name, 5 * len(EDGE_RECORDS)),
        Progress(5 * len(EDGE_RECORDS), "done"),
    )
    assert contents(broker.bootstrap, target) == {0: EDGE_RECORDS * 5}


def test_progress_is_committed_with_the_records(broker: Broker, topic: MakeTopic) -> None:
    (block,) = blocks_with(numbered_records(10))
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
    assert contents(broker.bootstrap, target) == {0: numbered_records(10)}


def test_a_resumed_restore_begins_at_the_same_offset(broker: Broker, topic: MakeTopic) -> None:
    name = topic("begins")
    records = [Record(0, b"k", b"v", (), NOW_MS)] * 5
    produce(broker.bootstrap, name, records)
    (columns,) = blocks_of(broker, name, 5)
    with producer(broker, name) as first_producer:
        assert first_producer.resume([(name, 0)])[name, 0] is None
        assert first_producer.begins((name, 0)) == 5
        first_producer.begin()
        first_producer.produce_block(name, 0, columns)
        first_producer.commit({})  # commits the records without their progress
    with producer(broker, name) as second_producer:
        assert second_producer.resume([(name, 0)])[name, 0] == Progress(0, "")
        assert second_producer.begins((name, 0)) == 5


def test_leaving_with_an_error_aborts_the_transaction(broker: Broker, topic: MakeTopic) -> None:
    (block,) = blocks_with(numbered_records(10))
    target = topic("target")
    restore = producer(broker, target)
    restore.begin()
    restore.produce_block(target, 0, block)
    restore.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert contents(broker.bootstrap, target) == {}


def test_the_next_producer_fences_the_last(broker: Broker, topic: MakeTopic) -> None:
    (block,) = blocks_with(numbered_records(10))
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
    assert contents(broker.bootstrap, target) == {0: numbered_records(10)}


LARGE_MESSAGES, FULL_QUEUE = (40, 1_000_000, {}), (5000, 1000, {"queue.buffering.max.kbytes": "256"})
QUEUE_OF_FEW = (5000, 10, {"queue.buffering.max.messages": "100"})


@pytest.mark.parametrize(
    ("count", "size", "config"),
    mark_long(
        [(3000, 10_000, {}), LARGE_MESSAGES, FULL_QUEUE, QUEUE_OF_FEW],
        [LARGE_MESSAGES, FULL_QUEUE, QUEUE_OF_FEW],
    ),
)
def test_large_messages_and_a_full_queue_need_no_settings(
    broker: Broker, topic: MakeTopic, count: int, size: int, config: dict[str, str]
) -> None:
    target = topic("target")
    write_blocks(broker, target, blocks_with(numbered_records(count, size)), config=config)
    assert contents(broker.bootstrap, target) == {0: numbered_records(count, size)}


def test_a_record_that_the_topic_refuses_is_reported(broker: Broker, topic: MakeTopic) -> None:
    (block,) = blocks_with(numbered_records(3, 200_000))
    target = topic("target", **{"max.message.bytes": "1000"})
    with producer(broker, target) as restore:
        restore.begin()
        restore.produce_block(target, 0, block)
        with pytest.raises(LakebackupError, match="too large"):
            restore.commit({})
    assert contents(broker.bootstrap, target) == {}


def test_timestamp_zero_is_refused_or_written_as_one(broker: Broker, topic: MakeTopic) -> None:
    target = topic("target", **{"retention.ms": "-1"})
    block = with_timestamps([0, 5])
    with producer(broker, target) as restore:
        restore.begin()
        with pytest.raises(Refused, match="offset 0 has timestamp 0"):
            restore.produce_block(target, 0, block)
    write_blocks(broker, target, [block], zero_as_one=True)
    assert [record.timestamp for record in contents(broker.bootstrap, target)[0]] == [1, 5]


def with_timestamps(timestamps: list[int]) -> Columns:
    (block,) = blocks_with(numbered_records(len(timestamps)))
    rows = block.rows.copy()
    rows[:, TIMESTAMP] = timestamps
    return Columns(block.data, rows, block.fmt)


def test_records_without_a_time_stay_without_one(broker: Broker, topic: MakeTopic) -> None:
    timestamps = [-1, 5, -1, -7, 253_402_300_800_000, -1]
    target = topic("target", **{"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)})
    write_blocks(broker, target, [with_timestamps(timestamps)])
    assert [record.timestamp for record in contents(broker.bootstrap, target)[0]] == timestamps


def test_files_of_version_1_are_written_back(broker: Broker, topic: MakeTopic) -> None:
    target = topic("target")
    rows = [
        {"topic": "t", "partition": 0, "offset": 5, "timestamp": NOW_MS, "key": None, "value": b"", "headers":
        None},
        {
            "topic": "t",
            "partition": 0,
            "offset": 9,
            "timestamp": NOW_MS - 1,
            "key": b"",
            "value": b"v",
            "headers": {"a": b"1", "b": b""},
        },
    ]  # fmt: skip
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(json.loads(SCHEMA_V1)), rows)
    file.seek(0)
    write_blocks(broker, target, FileReader(file, "v1"))
    assert contents(broker.bootstrap, target) == {
        0: [Record(0, None, b"", (), NOW_MS), Record(0, b"", b"v", (("a", b"1"), ("b", b"")), NOW_MS - 1)]
    }


def test_a_producer_without_a_broker_fails_after_its_patience() -> None:
    start = time.monotonic()
    with pytest.raises(EnvironmentProblem):
        RestoreProducer({"bootstrap.servers": "127.0.0.1:1"}, "t", "g", patience=1)
    assert time.monotonic() - start < 15
