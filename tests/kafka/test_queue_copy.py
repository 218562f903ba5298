"""Tests one task of a backup of queues against a real broker. fastavro reads its files; no Spark is used."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import IsolationLevel, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.support.kafka_truth import Record, produce, until

from lakebackup.errors import Damaged, Refused
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.formats.queues.watermark import Watermark, headers_of
from lakebackup.plan.queues.backup import QueueRange
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.manifest import read_part
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.key_filter import may_hold
from lakebackup_jobs.queues import transaction_scan as scan_module
from lakebackup_jobs.queues.backup.copy_task import QueueCopyJob
from lakebackup_jobs.queues.transaction_scan import (
    SCAN_SCHEMA,
    TaskScans,
    behind_marks,
    marks_of,
    read_ranges,
)

pytestmark = pytest.mark.kafka
MakeTopic = Callable[..., str]
BACKUP_ID = "20260131T134511Z-0a1b2c3d"
NOW_MS = int(time.time() * 1000)


def message(tid: int, transaction: str = "", kind: str = "", partition: int = 0, size: int = 50) -> Record:
    headers: list[tuple[str, bytes | None]] = [("tid", str(tid).encode())]
    headers += [("transaction", transaction.encode())] if transaction else []
    headers += [("kind", kind.encode())] if kind else []
    return Record(partition, f"key-{tid}".encode(), b"x" * size, tuple(headers), NOW_MS + tid)


def watermark(restore_id: str, to_tid: int = 30, partition: int = 0) -> Record:
    value = Watermark("graph", "f1", "i2", restore_id, 10, to_tid).value
    return Record(partition, None, value, tuple(headers_of(HeaderNames())), NOW_MS)


class Lab:
    """A repository, and jobs that write into it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.storage = bootstrap, open_storage(str(folder))
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def span(self, topic: str, start: int = 0, end: int | None = None, **changes: Any) -> QueueRange:
        """A range of a queue's offsets. Without `end` it ends at the last stable offset."""
        description = self.admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        span = QueueRange(topic, _hex(description.topic_id), "0", start, end or 0, 0, 0)
        span = replace(span, **changes)
        return span if end is not None else replace(span, end=self.stable_end(topic, int(span.region)))

    def stable_end(self, topic: str, partition: int = 0) -> int:
        topic_partition = TopicPartition(topic, partition)
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        answer = self.admin.list_offsets(
            {topic_partition: latest}, isolation_level=IsolationLevel.READ_COMMITTED
        )
        return int(answer[topic_partition].result(30).offset)

    def job(self, *spans: QueueRange, **changes: Any) -> QueueCopyJob:
        settings: dict[str, Any] = {
            "uri": self.storage.uri,
            "destination": "d",
            "source": "graph",
            "backup_id": BACKUP_ID,
            "number": 2,
            "level": 1,
            "parent": "20260130T134511Z-0a1b2c3d",
            "client": {"bootstrap.servers": self.bootstrap},
            "isolation": "read_committed",
            "codec": "zstandard",
            "compression_level": 1,
            "target_bytes": 1 << 27,
            "tasks": (spans,),
            "sequences": {},
            "report": False,
            "names": HeaderNames(),
        }
        return QueueCopyJob(**settings | changes)

    def write_transaction_ids(self, *ids: str) -> str:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"transaction_id": pa.array(ids, pa.string())}), sink)
        self.storage.put("carried.parquet", sink.getvalue().to_pybytes())
        return "carried.parquet"

    def files(self, task: int = 0) -> list[DataFile]:
        return read_part(self.storage, layout.parts_path("graph", BACKUP_ID, task))

    def stored_messages(self, task: int = 0) -> list[tuple[str, int, int]]:
        """Check the figures of a task's files. Returns (partition, offset, tid) of each of their messages."""
        messages = []
        for file in self.files(task):
            data = self.storage.get(file.path)
            rows = cast("list[dict[str, Any]]", list(fastavro.reader(io.BytesIO(data))))
            file_messages = [(file.region, row["offset"], tid_of(row)) for row in rows]
            assert (file.bytes, file.entries) == (len(data), len(rows))
            assert (file.min_tid, file.max_tid) == (
                min(entry[2] for entry in file_messages),
                max(entry[2] for entry in file_messages),
            )
            assert (file.start_position, file.end_position) == (file_messages[0][1], file_messages[-1][1] + 1)
            timestamps = [row["timestamp"] for row in rows]
            assert (file.min_ts, file.max_ts) == (min(timestamps), max(timestamps))
            assert file.start_key == min(row["key"] for row in rows).hex()
            assert file.raw_bytes == sum(
                columns.data.shape[0] for columns in FileReader(io.BytesIO(data), "f")
            )
            assert may_hold(self.storage, file, [row["key"] for row in rows])
            assert not may_hold(self.storage, file, [b"nobody's key"])
            messages += file_messages
        return messages

    def scanned_transactions(self, task: int = 0) -> dict[tuple[str, str], tuple[int, int, int, bool]]:
        rows = pa.Table.from_batches(
            TaskScans(self.storage.uri, "graph", BACKUP_ID, {}).rows(task), SCAN_SCHEMA
        ).to_pylist()
        return {
            (r["transaction_id"], r["region"]): (
                r["first_position"],
                r["first_tid"],
                r["entries"],
                r["ended"],
            )
            for r in rows
        }


def tid_of(row: dict[str, Any]) -> int:
    return next(int(h["value"]) for h in row["headers"] if h["key"] == "tid")


def _hex(topic_id: Any) -> str:
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return f"{(high % 2**64):016x}{(low % 2**64):016x}"


@pytest.fixture
def queue_lab(broker: Broker, tmp_path: Path) -> Lab:
    return Lab(broker.bootstrap, tmp_path)


def test_only_messages_of_carried_transactions_are_stored_before_the_own_range(
    queue_lab: Lab, topic: MakeTopic
) -> None:
    name = topic("delta")
    produce(
        queue_lab.bootstrap,
        name,
        [
            watermark("another"),
            message(10, "open", "begin"),
            message(11, "done", "begin"),
            message(12),
            message(13, "open"),
            message(14, "done", "commit"),
            message(15, "listed elsewhere"),
            message(16, "open"),  # the backup's own range starts after this message
            watermark("r1"),
            message(17),
            message(18, "new", "BEGIN"),
            message(19, "open", "commit"),
            message(20, "short", "begin"),
            message(21, "short", "rollback"),
        ],
    )
    span = queue_lab.span(name, own_from=7)
    watermarks = frozenset({(name, span.epoch, "0", "r1")})
    result = queue_lab.job(
        span, carried=queue_lab.write_transaction_ids("another", "open"), watermarks=watermarks
    ).run(0)
    assert queue_lab.stored_messages() == [
        ("0", tid - 9 + (tid > 16), tid) for tid in (10, 13, 16, 17, 18, 19, 20, 21)
    ]
    assert (result["entries"], result["files"]) == (8, 1)
    assert queue_lab.scanned_transactions() == {
        ("open", "0"): (1, 10, 2, True),
        ("new", "0"): (10, 18, 1, False),
        ("short", "0"): (12, 20, 2, True),
    }
    ((message_range,), _) = read_ranges(queue_lab.storage, "graph", BACKUP_ID, 0)
    assert (message_range.entries, message_range.carried, message_range.first_tid) == (8, 2, 10)
    assert (message_range.last_tid, message_range.last_tid_position) == (21, 13)
    assert (message_range.scope, message_range.epoch, message_range.region) == (name, span.epoch, "0")


def test_a_scan_without_keep_stores_nothing(queue_lab: Lab, topic: MakeTopic) -> None:
    name = topic("delta", partitions=2)
    rows = [message(tid, f"t{tid % 7}", "commit" if tid > 90 else "", tid % 2) for tid in range(100)]
    produce(queue_lab.bootstrap, name, rows)
    spans = [queue_lab.span(name, region="0", start=10), queue_lab.span(name, region="1", start=0, end=40)]
    result = queue_lab.job(*spans, keep=False).run(0)
    assert (result["files"], result["entries"]) == (0, 0)
    scanned = [(tid, "0") for tid in range(20, 100, 2)] + [(tid, "1") for tid in range(1, 80, 2)]
    expected: dict[tuple[str, str], tuple[int, int, int, bool]] = {}
    for tid, region in scanned:
        previous = expected.get((f"t{tid % 7}", region), (tid // 2, tid, 0, False))
        expected[f"t{tid % 7}", region] = (previous[0], previous[1], previous[2] + 1, previous[3] or tid > 90)
    assert queue_lab.scanned_transactions() == expected
    ranges, _ = read_ranges(queue_lab.storage, "graph", BACKUP_ID, 0)
    assert [(r.region, r.start, r.end, r.entries, r.last_tid_position) for r in ranges] == [
        ("0", 10, 50, 40, 49),
        ("1", 0, 40, 40, 39),
    ]


def test_messages_of_an_unknown_restore_are_refused(queue_lab: Lab, topic: MakeTopic) -> None:
    name = topic("delta", partitions=2)
    rows = [message(10), message(11, "t"), watermark("r7"), message(10), message(12, partition=1)]
    unreadable_watermark = Record(1, None, b"{}", tuple(headers_of(HeaderNames())), NOW_MS)
    produce(queue_lab.bootstrap, name, [*rows, unreadable_watermark])
    span, other_span = queue_lab.span(name), queue_lab.span(name, region="1")
    watermarks = {(name, span.epoch, "0", "r6"), (name, span.epoch, "1", "r7"), (name, "e", "0", "r7")}
    for bad_span, text in ((span, "restore r7"), (other_span, "a restore whose watermark cannot be read")):
        with pytest.raises(Refused) as refused:
            queue_lab.job(bad_span, watermarks=frozenset(watermarks)).run(0)
        offset = 2 if bad_span is span else 1
        assert refused.value.message.startswith(f"{name}[{bad_span.region}] at offset {offset}: ")
        assert text in refused.value.message
        assert "--mode full" in refused.value.hint
    assert list(queue_lab.storage.list()) == []
    # Watermarks before the own range, or after the end of the range, are not checked.
    queue_lab.job(replace(span, own_from=3), replace(other_span, end=1)).run(0)
    assert queue_lab.stored_messages() == [("0", 3, 10), ("1", 0, 12)]
    watermarks.add((name, span.epoch, "0", "r7"))
    queue_lab.job(span, tasks=((), (span,)), watermarks=frozenset(watermarks)).run(1)
    assert [tid for _, _, tid in queue_lab.stored_messages(1)] == [10, 11, 10]


def test_messages_before_the_last_watermark_do_not_count(
    queue_lab: Lab, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic("delta", partitions=2)
    old_messages = [message(tid, f"t{tid % 40}", "commit" if tid % 5 == 0 else "") for tid in range(500, 600)]
    marks = [watermark("r1", 20), message(17, "t1"), message(18, "t2"), watermark("r2", 30)]
    new_messages = [message(31, "t2"), message(32, "t9", "commit")]
    produce(queue_lab.bootstrap, name, [*old_messages, *marks, *new_messages, message(33, "t2", "commit", 1)])
    monkeypatch.setattr(
        scan_module, "BUFFERED_MESSAGES", 16
    )  # the scan hands out rows before it reaches the watermark
    ends = (0, 50, 102, 105, 106)
    spans = [queue_lab.span(name, start, end) for start, end in pairwise(ends)]
    spans.append(queue_lab.span(name, region="1"))
    job = queue_lab.job(*spans[:3], keep=False, tasks=(tuple(spans[:3]), tuple(spans[3:])))
    for task in range(2):
        job.run(task)
    ranges = [r for task in range(2) for r in read_ranges(queue_lab.storage, "graph", BACKUP_ID, task)[0]]
    assert [(r.watermark, r.restore_id, r.restored_tid) for r in ranges] == [
        (None, None, None), (100, "r1", 20), (103, "r2", 30), (None, None, None), (None, None, None)
    ]  # fmt: skip
    counted_ranges = behind_marks(ranges)
    assert [(r.entries, r.first_tid, r.last_tid) for r in counted_ranges] == [
        (0, None, None), (0, None, None), (1, 31, 31), (1, 32, 32), (1, 33, 33)
    ]  # fmt: skip
    assert [(r.start, r.end, r.watermark) for r in counted_ranges[:3]] == [
        (0, 50, None),
        (50, 102, None),
        (102, 105, 103),
    ]
    scans = TaskScans(queue_lab.storage.uri, "graph", BACKUP_ID, marks_of(ranges))
    scan_rows = [row for task in range(2) for batch in scans.rows(task) for row in batch.to_pylist()]
    rows = [(row["transaction_id"], row["region"], row["first_position"]) for row in scan_rows]
    assert rows == [("t2", "0", 104), ("t9", "0", 105), ("t2", "1", 0)]


def test_aborted_and_uncommitted_kafka_transactions_are_not_stored(queue_lab: Lab, topic: MakeTopic) -> None:
    name = topic("delta")
    produce(queue_lab.bootstrap, name, [message(1)])
    for number, is_committed in enumerate((True, False, True, False)):
        records = [message(tid, f"t{number}") for tid in range(10 * number + 10, 10 * number + 13)]
        produce(
            queue_lab.bootstrap,
            name,
            records,
            commit=is_committed,
            **{"transactional.id": f"{name}-{number}"},
        )
    until(lambda: queue_lab.stable_end(name) == 1 + 4 * 4, "the last transaction is over")
    open_producer = Producer({"bootstrap.servers": queue_lab.bootstrap, "transactional.id": f"{name}-open"})
    open_producer.init_transactions(30)
    open_producer.begin_transaction()
    open_producer.produce(name, b"v", headers=[("no tid", b"")])
    assert open_producer.flush(30) == 0
    produce(queue_lab.bootstrap, name, [message(99)])
    try:
        span = queue_lab.span(name)
        assert span.end == 17
        queue_lab.job(span).run(0)
        assert [tid for _, _, tid in queue_lab.stored_messages()] == [1, 10, 11, 12, 30, 31, 32]
        assert {transaction_id for transaction_id, _ in queue_lab.scanned_transactions()} == {"t0", "t2"}
    finally:
        open_producer.abort_transaction(30)


def test_each_file_records_the_tids_of_its_own_blocks(queue_lab: Lab, topic: MakeTopic) -> None:
    """Compression runs ahead of writing. A file must not get the tids of blocks of the next file."""
    name = topic("delta")
    tids = [1_000_000 - tid if tid % 3 else tid for tid in range(60_000)]
    rows = [message(tid, f"t{tid // 10}", size=700) for tid in tids]
    produce(queue_lab.bootstrap, name, rows)
    result = queue_lab.job(queue_lab.span(name), target_bytes=1, codec="null", compression_level=None).run(0)
    assert result["files"] == len(queue_lab.files()) > 8
    assert queue_lab.stored_messages() == [("0", offset, tid) for offset, tid in enumerate(tids)]
    assert len({(file.min_tid, file.max_tid) for file in queue_lab.files()}) > 8
    counts = Counter(f"t{tid // 10}" for tid in tids)
    assert {
        transaction_id: figures[2]
        for (transaction_id, _), figures in queue_lab.scanned_transactions().items()
    } == counts


def test_a_repeated_task_counts_once(queue_lab: Lab, topic: MakeTopic) -> None:
    name = topic("delta")
    produce(queue_lab.bootstrap, name, [message(tid, f"t{tid % 3}") for tid in range(100)])
    job = queue_lab.job(queue_lab.span(name, start=20))
    first_result = job.run(0)
    part, transactions = (
        queue_lab.storage.get(layout.parts_path("graph", BACKUP_ID, 0)),
        queue_lab.scanned_transactions(),
    )
    produce(queue_lab.bootstrap, name, [message(200)])
    assert job.run(0) == first_result
    assert queue_lab.storage.get(layout.parts_path("graph", BACKUP_ID, 0)) == part
    # Without its part the first attempt does not count, so its file is an orphan.
    queue_lab.storage.delete(layout.parts_path("graph", BACKUP_ID, 0))
    second_result = job.run(0)
    assert (
        (second_result["entries"], second_result["files"])
        == (first_result["entries"], first_result["files"])
        == (80, 1)
    )
    assert queue_lab.stored_messages() == [("0", tid, tid) for tid in range(20, 100)]
    assert queue_lab.scanned_transactions() == transactions
    folder = layout.partition_folder("graph", job.tasks[0][0].epoch, name, 0)
    assert len(list(queue_lab.storage.list(folder))) == 2


def test_a_missing_or_torn_file_of_carried_transactions_is_refused(queue_lab: Lab, topic: MakeTopic) -> None:
    name = topic("delta")
    produce(queue_lab.bootstrap, name, [message(tid, "t") for tid in range(10)])
    path = queue_lab.write_transaction_ids("t")
    queue_lab.storage.put(path, queue_lab.storage.get(path)[:-9])
    for bad_path in (path, "nothing.parquet"):
        with pytest.raises(Damaged, match=bad_path):
            queue_lab.job(queue_lab.span(name, own_from=5), carried=bad_path).run(0)
