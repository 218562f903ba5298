"""Which transactions a restore leaves out, and which a backup finds open: in this process, on made files."""

from __future__ import annotations

import io
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
from lakebackup.plan.queues.restore import QueueRestoreRequest, content_of, plan_restore
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup.execute import InProgress
from lakebackup_jobs.queues.backup.listing import Listing
from lakebackup_jobs.queues.backup.open_transactions import Open
from lakebackup_jobs.queues.restore import summary
from lakebackup_jobs.queues.restore.prepare import prepare
from lakebackup_jobs.queues.restore.restore_state import Done, Prepared, RestoreState, TopicsBefore
from lakebackup_jobs.queues.restore.splits import found as found_splits
from lakebackup_jobs.queues.transaction_ids import read_ids
from lakebackup_jobs.queues.transaction_scan import SCAN_SCHEMA, RangeScan, ScanWriter
from lakebackup_jobs.targets.topics import NewTopic

QUIET = Reporter(io.StringIO(), io.StringIO())
BACKUP = "20260131T134511Z-0a1b2c3d"


@pytest.fixture
def made(tmp_path: Path) -> MadeQueues:
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
    """Topics that are not there before the restore."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}

    def topic_names(self) -> list[str]:
        return list(self.made)

    def make(self, new: NewTopic) -> list[str]:
        self.made[new.name] = new.regions
        return []

    def describe(self, names: Any) -> list[TopicState]:
        return [TopicState(name, "e", self.made[name], 1, {}) for name in names]

    def ends(self, places: Any) -> dict[tuple[str, int], Any]:
        return {place: SimpleNamespace(high=7) for place in places}

    def cluster_id(self) -> str:
        return "c1"


@pytest.mark.parametrize(
    ("to_tid", "left_out"),
    [
        (12, {"a", "b"}),
        (13, {"a", "b"}),
        (19, {"a", "b", "c"}),
        (20, {"b", "c"}),
        (22, {"c", "d"}),
        (None, {"c", "d"}),
    ],
)
def test_what_a_restore_prepares(made: MadeQueues, to_tid: int | None, left_out: set[str]) -> None:
    request = QueueRestoreRequest(str(made.root), "social", "kafka://b", "out", to_tid=to_tid)
    reader = CatalogReader(str(made.root))
    plan = plan_restore(request, reader, lambda *_: 0)
    work, state = Workspace(request, "social", QUIET), RestoreState(made.storage, BACKUP)
    topics: Any = Topics()
    found = prepare(request, work, topics, state, plan)
    assert state.read(Prepared) == found
    assert (found.first_tid, found.to_tid, found.upto_tid) == (5, to_tid or 22, to_tid)
    assert (found.open_transactions, set(found.open_ids)) == (len(left_out), left_out)
    (path,) = found.leave_out
    assert path is not None
    assert {one.decode() for one in read_ids(made.storage, path).to_pylist()} == left_out
    assert not list(made.storage.list(f"{state.folder}scan/"))
    splits = found_splits(made.storage, state.folder)
    assert splits is not None
    places = [place.scope + place.region for task in splits.numbers for place, _ in splits.partitions(task)]
    assert sorted(places) == ["delta.00", "delta.01", "journal.00"]
    assert [content_of(file, reader) for file in plan.config]
    assert state.read(TopicsBefore) is not None
    assert summary.suspended(state) == ""
    rows = [
        SimpleNamespace(scope=topic, region=str(n), base=7, position=9, others=0)
        for topic, ends in found.bases.items()
        for n in range(len(ends))
    ]
    done = summary.done_of(rows, found)
    state.write(done)
    assert state.read(Done) == done
    writer = CatalogWriter(None, str(made.root))
    for _ in range(2):
        summary.publish(work.reader(), writer, state, found, done)
    assert len(work.reader().rows("queue_restored", restore_id=BACKUP)) == 3
    state.clear()
    assert not list(made.storage.list(state.folder))


def test_what_a_backup_finds_open(made: MadeQueues) -> None:
    topics = [TopicState("delta.0", "e" * 32, 1, 1, {})]
    regions = [RegionState("delta.0", "e" * 32, "0", 0, 9, 9, None)]
    plan = Queues(BACKUP, "social", Continuation(), topics, regions, 5000).full(None)
    draft = InProgress(BACKUP, 4, 1, plan, {}, [])
    request = QueueRestoreRequest(str(made.root), "social", "kafka://b", "out")
    work = Workspace(request, "social", QUIET)
    seen = [("a", 3, 30, 2, False), ("b", 4, 31, 1, False), ("b", 6, 33, 1, True)]
    place = ("delta.0", "e" * 32, "0")
    rows = [dict(zip(SCAN_SCHEMA.names, (one[0], *place, *one[1:]), strict=True)) for one in seen]
    assert len(plan.tasks) == 1
    with ScanWriter(made.storage, "social", BACKUP, 0) as writer:
        writer.sink(pa.RecordBatch.from_pylist(rows, SCAN_SCHEMA))
        writer.commit([RangeScan(*place, 0, 9, 4, 0, 30, 33, 6)])
    found = Open(work, draft, plan.tasks, work.reader())
    assert (found.count, found.early(), found.unlike(), found.lost()) == (1, None, [], (0, []))
    (position,) = found.positions()
    assert (position.no_transaction_position, position.last_tid) == (3, 33)
    point = found.point("s1")
    assert (point.last_tid, point.open_transactions, point.snapshot_id) == (33, 1, "s1")
    assert found.suspects("candidates.parquet") == 30
    assert read_ids(made.storage, "candidates.parquet").to_pylist() == [b"a"]
    parts = Parts(uri=made.storage.uri, destination="d", source="social", backup_id=BACKUP, number=4)
    listing = Listing(made.storage, parts, 5000)
    listing.put("queue_points", [point])
    written = found.write(listing.path("queue_transactions"))
    listing.add("queue_transactions", written)
    listing.file("config.yaml", "config", b"a")
    listing.file("schema.yaml", "schema", None)
    assert [row.role for row in listing.rows] == ["meta", "meta", "config"]
    table = pq.read_table(pa.BufferReader(made.storage.get(written.path)))
    assert (written.rows, table["transaction_id"].to_pylist(), table["entries"].to_pylist()) == (
        1,
        ["a"],
        [2],
    )
