"""The transactions that a restore leaves out and that a backup records as open, on handmade files."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.made_backups import MadeBackups
from tests.support.made_queues import MadeQueues

from lakebackup.plan.partitions import RegionState, TopicState
from lakebackup.plan.queues.backup import Queues
from lakebackup.plan.queues.history import Continuation
from lakebackup.plan.queues.restore import QueueRestoreRequest, plan_restore
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.plan_shares import stored_plan
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.draft import InProgress
from lakebackup_jobs.queues.backup.listing import Listing
from lakebackup_jobs.queues.backup.open_transactions import Open
from lakebackup_jobs.queues.backup.request import StoredFile
from lakebackup_jobs.queues.restore import summary
from lakebackup_jobs.queues.restore.config_files import read_config
from lakebackup_jobs.queues.restore.prepare import prepare
from lakebackup_jobs.queues.restore.restore_state import (
    CompletedRestore,
    Prepared,
    RestoreState,
    TopicsBefore,
)
from lakebackup_jobs.queues.restore.shares import partitions as partitions_of
from lakebackup_jobs.queues.transaction_ids import read_ids
from lakebackup_jobs.queues.transaction_scan import SCAN_SCHEMA, RangeScan, ScanWriter

QUIET = Reporter(io.StringIO(), io.StringIO())
BACKUP = "20260131T134511Z-0a1b2c3d"


@pytest.fixture
def queues(tmp_path: Path) -> MadeQueues:
    """A full at tid 5, and two backups on it: to tid 12 and to tid 22."""
    folder = MadeBackups(tmp_path / "queues").folder
    queues = MadeQueues(folder, CatalogWriter(None, str(folder)))
    queues.write(5)
    queues.full(10)
    queues.write(11, transaction="a", kind="begin")
    queues.write(12, partition=1, transaction="b")
    queues.incremental(20)
    queues.write(14, transaction="c")
    queues.write(20, partition=1, transaction="a", kind="commit")
    queues.write(21, transaction="b", kind="rollback")
    queues.write(22, queue="journal.0", transaction="d")
    queues.incremental(30)
    return queues


class Topics:
    """A target that has no topics before the restore."""

    def __init__(self) -> None:
        self.regions_by_topic: dict[str, int] = {}

    def topic_names(self) -> list[str]:
        return list(self.regions_by_topic)

    def suspend(self, topics: Collection[str]) -> None:
        assert not topics

    def make(self, topics: Collection[NewTopic], created: list[str]) -> list[str]:
        created += [topic.name for topic in topics]
        self.regions_by_topic |= {topic.name: topic.regions for topic in topics}
        return []

    def wait_until_served(self, partitions: dict[str, int]) -> None:
        assert partitions.items() <= self.regions_by_topic.items()

    def describe(self, names: Any) -> list[TopicState]:
        return [TopicState(name, "e", self.regions_by_topic[name], 1, {}) for name in names]

    def ends(self, partitions: Any) -> dict[tuple[str, int], Any]:
        return {partition: SimpleNamespace(high=7) for partition in partitions}

    def cluster_id(self) -> str:
        return "c1"


@pytest.mark.parametrize(
    ("to_tid", "skipped_ids"),
    [
        (12, {"a", "b"}),
        (13, {"a", "b"}),
        (19, {"a", "b", "c"}),
        (20, {"b", "c"}),
        (22, {"c", "d"}),
        (None, {"c", "d"}),
    ],
)
def test_a_restore_prepares_splits_without_open_transactions(
    queues: MadeQueues, to_tid: int | None, skipped_ids: set[str]
) -> None:
    request = QueueRestoreRequest(str(queues.root), "social", "kafka://b", "out", to_tid=to_tid)
    reader = CatalogReader(str(queues.root))
    plan = plan_restore(request, reader, lambda *_: 0)
    work, state = Workspace(request, "social", QUIET), RestoreState(queues.storage, BACKUP)
    topics: Any = Topics()
    prepared = prepare(request, work, topics, state, plan, reader)
    assert state.read(Prepared) == prepared
    assert (prepared.first_tid, prepared.to_tid, prepared.upto_tid) == (5, to_tid or 22, to_tid)
    assert (prepared.open_transactions, set(prepared.open_ids)) == (len(skipped_ids), skipped_ids)
    (path,) = prepared.leave_out
    assert path is not None
    assert {
        transaction_id.decode() for transaction_id in read_ids(queues.storage, path).to_pylist()
    } == skipped_ids
    assert not list(queues.storage.list(f"{state.folder}scan/"))
    shares = stored_plan(queues.storage, state.folder)
    assert shares is not None
    partitions = [
        partition.scope + partition.region
        for task in shares[0].numbers
        for partition, _ in partitions_of(shares[0], task)
    ]
    assert sorted(partitions) == ["delta.00", "delta.01", "journal.00"]
    assert [read_config(file, reader) for file in plan.config]
    assert state.read(TopicsBefore) is not None
    assert summary.suspended(state) == ""
    rows = [
        SimpleNamespace(scope=topic, region=str(n), base=7, position=9, others=0)
        for topic, ends in prepared.bases.items()
        for n in range(len(ends))
    ]
    completed = summary.done_of(rows, prepared)
    state.write(completed)
    assert state.read(CompletedRestore) == completed
    writer = CatalogWriter(None, str(queues.root))
    for _ in range(2):
        summary.publish(work.reader(), writer, state, prepared, completed)
    assert len(work.reader().rows("queue_restored", restore_id=BACKUP)) == 3
    state.clear()
    assert not list(queues.storage.list(state.folder))


def test_a_backup_records_open_transactions(queues: MadeQueues) -> None:
    topics = [TopicState("delta.0", "e" * 32, 1, 1, {})]
    regions = [RegionState("delta.0", "e" * 32, "0", 0, 9, 9, None)]
    plan = Queues(BACKUP, "social", Continuation(), topics, regions, 5000).full(None)
    draft = InProgress(BACKUP, 4, 1, plan, {}, [])
    request = QueueRestoreRequest(str(queues.root), "social", "kafka://b", "out")
    work = Workspace(request, "social", QUIET)
    transactions = [("a", 3, 30, 2, False), ("b", 4, 31, 1, False), ("b", 6, 33, 1, True)]
    partition = ("delta.0", "e" * 32, "0")
    rows = [
        dict(zip(SCAN_SCHEMA.names, (transaction[0], *partition, *transaction[1:]), strict=True))
        for transaction in transactions
    ]
    assert len(plan.tasks) == 1
    with ScanWriter(queues.storage, "social", BACKUP, 0) as writer:
        writer.sink(pa.RecordBatch.from_pylist(rows, SCAN_SCHEMA))
        writer.commit([RangeScan(*partition, 0, 9, 4, 0, 30, 33, 6)])
    open_transactions = Open(work, draft, plan.tasks, work.reader())
    assert (
        open_transactions.count,
        open_transactions.early(),
        open_transactions.unlike(),
        open_transactions.lost(),
    ) == (1, None, [], (0, []))
    (position,) = open_transactions.positions()
    assert (position.no_transaction_position, position.last_tid) == (3, 33)
    point = open_transactions.point("s1")
    assert (point.last_tid, point.open_transactions, point.snapshot_id) == (33, 1, "s1")
    assert open_transactions.suspects("candidates.parquet") == 30
    assert read_ids(queues.storage, "candidates.parquet").to_pylist() == [b"a"]
    parts = Parts(uri=queues.storage.uri, destination="d", source="social", backup_id=BACKUP, number=4)
    listing = Listing(queues.storage, parts, 5000)
    listing.write_rows("queue_points", [point])
    listed_file = open_transactions.write(listing.path("queue_transactions"))
    listing.add("queue_transactions", listed_file)
    listing.file(StoredFile("config", "config.yaml", b"a", 1))
    assert [row.role for row in listing.rows] == ["meta", "meta", "config"]
    table = pq.read_table(pa.BufferReader(queues.storage.get(listed_file.path)))
    assert (listed_file.rows, table["transaction_id"].to_pylist(), table["entries"].to_pylist()) == (
        1,
        ["a"],
        [2],
    )
