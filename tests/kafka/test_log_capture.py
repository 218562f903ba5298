"""Capturing a change feed from a real broker: every event is in one log file, what fails leaves nothing.

The jobs run in this process, as they run in Spark's tasks.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support import kafka_truth as truth
from tests.support import made_up
from tests.support.catalogs import backup_id, made_backup
from tests.support.change_feed import ChangeFeed, produce
from tests.support.disks import small_disk

from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.formats.logs.cipher import Cipher, LogKeys
from lakebackup.formats.logs.events import captured_schema
from lakebackup.formats.logs.logfile import FORMAT, read_log_file
from lakebackup.rows.backups import DataFile
from lakebackup.rows.base import CHANGES
from lakebackup.rows.upkeep import Destination, Migration
from lakebackup.rules import layout
from lakebackup.sql_engine import pace
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.manifest import read_part
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.lifecycle.tasks import part as part_task
from lakebackup_jobs.lifecycle.tasks.errors import raise_first
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.logs.capture.flush_task import CaptureJob
from lakebackup_jobs.logs.capture.fold_task import FoldJob
from lakebackup_jobs.logs.capture.names_task import NEVER
from lakebackup_jobs.logs.feeds import Range
from lakebackup_jobs.logs.feeds.br import BrDecoder, BrFeed
from lakebackup_sql import names

pytestmark = pytest.mark.kafka
KEYS = LogKeys("keys.toml", "k1", {"k1": b"x" * 32})


class Capture:
    """A destination whose catalog has no rows yet, and a topic of a feed that is captured into it."""

    def __init__(self, bootstrap: str, folder: Path, topic: str, partitions: int) -> None:
        self.folder, self.topic = folder, topic
        self.storage = open_storage(str(folder))
        migrations = [
            Migration(version=n, name=name, applied_at=0) for n, name in enumerate(names("migrations"), 1)
        ]
        destination = destination_id(self.storage)
        made_up.put(folder, [*migrations, Destination(destination=destination, uri="", created_at=0)])
        self.client = {"bootstrap.servers": bootstrap}
        self.destination, self.partitions = destination, partitions
        self.done = dict.fromkeys(range(partitions), 0)
        self.number, self.parent = 1, None
        self.checkpoint: int | None = None

    def job(self, **changes: Any) -> CaptureJob:
        """Of what is new, a task a partition."""
        cluster = Cluster(self.client)
        [about] = cluster.describe([self.topic])
        _, regions = cluster.positions([about], "read_committed")
        ends = {int(region.region): region.end for region in regions}
        tasks = [(Range(self.topic, p, about.epoch, self.done[p], ends[p]),) for p in range(self.partitions)]
        settings: dict[str, Any] = {
            "uri": self.storage.uri,
            "destination": self.destination,
            "source": "task",
            "backup_id": backup_id(self.number),
            "number": self.number,
            "parent": self.parent,
            "client": self.client,
            "feed": BrFeed((self.topic,)),
            "context": {},
            "tasks": tuple(tasks),
        }
        return CaptureJob(**settings | changes)

    def fold(self, job: CaptureJob, **changes: Any) -> FoldJob:
        same = "uri destination source backup_id number parent feed context"
        given: dict[str, Any] = {name: getattr(job, name) for name in same.split()}
        given |= {"catalog": None, "tasks": len(job.tasks), "resolved_ts": self.checkpoint, "keys": KEYS}
        return FoldJob(**given | changes)

    def flush(self, *, fold: dict[str, Any] | None = None, **changes: Any) -> list[DataFile]:
        """Capture, fold and commit what is new; the rows of its files."""
        job = self.job(**changes)
        rows = run(job, len(job.tasks))
        folded = run(self.fold(job, **fold or {}), 1)
        for row in rows:
            for _, partition, _, end in json.loads(row["ends"]):
                self.done[partition] = end
        self._commit(job, [*rows, *folded])
        self.checkpoint, self.parent = folded[0]["checkpoint"], job.backup_id
        self.number += 1
        return self.files(job)

    def files(self, job: CaptureJob) -> list[DataFile]:
        paths = [layout.parts_path(job.source, job.backup_id, task) for task in range(len(job.tasks) + 1)]
        return [row for path in paths for row in read_part(self.storage, path)]

    def _commit(self, job: CaptureJob, rows: list[dict[str, Any]]) -> None:
        totals = Totals()
        totals.add(SimpleNamespace(**row) for row in rows)
        backup = made_backup(
            job.number,
            source=job.source,
            source_kind=CHANGES,
            destination=self.destination,
            kind="log",
            level=1,
            parent=self.parent,
            base=backup_id(1),
            chain_position=job.number - 1,
            parent_place=job.number - 1 or None,
            ts_domain="tso",
            start_ts=self.checkpoint,
            end_ts=rows[-1]["checkpoint"] or 0,
            files=totals.files,
            bytes=totals.bytes,
            entries=totals.entries,
            digest=totals.digest.hex(),
            codec=job.codec,
        )
        manifest = sidecar.Manifest(backup=backup, positions=(), scopes=(), gaps=(), parts=len(rows))
        CatalogWriter(None, str(self.folder)).commit_backup(self.storage, manifest, held=None)

    def records(self, files: list[DataFile]) -> list[tuple[Any, ...]]:
        """What the log files hold: (store, region, table, cf, op, key, value, start, commit, type)."""
        found = []
        for file in files:
            if file.format != FORMAT:
                continue
            store = file.path.rpartition("/")[2].partition(".log")[0]
            table = 0 if file.scope == "meta" else int(file.scope)
            head = (store, int(file.region), table, file.cf, file.op)
            for batch in read_log_file(self.storage, file, KEYS):
                rows = (tuple(row.values())[:5] for row in batch.to_pylist())
                found += [(*head, *row) for row in rows]
        return sorted(found, key=repr)

    def leave_out(self, *tables: int) -> None:
        """Put down ids of tables that were never in the filter, as `task/left`."""
        rows = pa.record_batch({"table_id": pa.array(tables, pa.int64())})
        write_rows(self.storage, "task/left", rows.schema, [rows])

    def catalog(self) -> CatalogReader:
        return CatalogReader(str(self.folder))


def run(job: CaptureJob | FoldJob, tasks: int) -> list[dict[str, Any]]:
    """The rows that Spark would get; raises what a task told."""
    rows = [row for batch in job(numbers(tasks)) for row in batch.to_pylist()]
    raise_first(row["error"] for row in rows)
    return rows


def sent(feed: ChangeFeed) -> list[tuple[Any, ...]]:
    """What a decoder makes of all that was sent, in the form of `Capture.records`."""
    found = []
    for partition in range(feed.partitions):
        decoder = BrDecoder(Range("t", partition, "e", 0, 0))
        records = decoder.decode(feed.records(partition)).records
        found += [tuple(row.values())[:10] for row in records.to_pylist()]
    assert captured_schema().names[:10] == [
        "store", "region", "table_id", "cf", "op", "key", "value", "start_ts", "commit_ts", "type",
    ]  # fmt: skip
    return sorted(found, key=repr)


@pytest.fixture
def capture(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Capture:
    return Capture(broker.bootstrap, tmp_path, topic("feed", partitions=2), 2)


def lively() -> ChangeFeed:
    """Two tables in four regions, rows with values of their own and apart from their writes."""
    feed = ChangeFeed(partitions=2, regions=4)
    orders, items = feed.create_table("shop", "orders"), feed.create_table("shop", "items")
    for number in range(60):
        with feed.begin() as txn:
            txn.put(orders, b"%d" % (number % 20), b"order " * (number % 9))
            txn.put(items, b"%d" % number, b"i")
            if number % 7 == 0:
                txn.delete(items, b"%d" % (number - 7))
    taken_back = feed.begin()
    taken_back.put(orders, b"never", b"a value that is never committed")
    taken_back.prewrite()
    taken_back.rollback()
    feed.resolve()
    return feed


@pytest.mark.parametrize(
    ("codec", "cipher"), [("zstd", None), ("lz4", Cipher("k1", b"x" * 32)), ("none", None)]
)
def test_every_event_is_in_a_log_file(capture: Capture, codec: str, cipher: Cipher | None) -> None:
    feed = lively()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    files = capture.flush(codec=codec, cipher=cipher)
    assert capture.records(files) == sent(feed)
    assert capture.checkpoint == feed.now
    logs = [file for file in files if file.format == FORMAT]
    assert {file.key_id for file in logs} == {cipher.key_id if cipher else None}
    assert {file.role for file in logs if file.scope == "meta"} == {"schema"}
    assert {(file.ts_domain, file.level, file.resolved_ts) for file in logs} == {("tso", 1, feed.now)}


def everything(capture: Capture) -> dict[str, bytes]:
    """All objects of the destination but the catalog's."""
    storage = capture.storage
    paths = (found.path for found in storage.list("task/"))
    return {path: storage.get(path) for path in paths}


def test_flushes_go_on_where_the_last_one_ended(capture: Capture) -> None:
    feed, files = ChangeFeed(partitions=2, regions=3), list[Any]()
    bootstrap = capture.client["bootstrap.servers"]
    table = feed.create_table("shop", "orders")
    for number in range(3):
        with feed.begin() as txn:
            txn.put(table, b"%d" % number, b"a long value")
        if number == 1:
            feed.move(feed.regions[1])
        feed.resolve()
        feed.send(bootstrap, capture.topic)
        files += capture.flush()
        assert capture.checkpoint == feed.now
    assert capture.records(files) == sent(feed)
    assert {file.parent for file in files} == {None, backup_id(1), backup_id(2)}
    regions = (
        capture.catalog().select("SELECT region, store, resolved_ts, closed FROM log_regions").read_all()
    )
    expected = {(str(r.id), r.store, feed.now, False) for r in feed.regions}
    assert {tuple(row.values()) for row in regions.to_pylist() if row["region"] != "0"} == expected


def test_a_log_on_top_of_a_full_knows_the_tables_that_were_there_before(capture: Capture) -> None:
    feed = ChangeFeed(partitions=2, regions=3)
    orders, items = feed.create_table("shop", "orders"), feed.create_table("shop", "items")
    since = capture.checkpoint = feed.now
    feed.truncate_table(items)
    with feed.begin() as txn:
        txn.put(orders, b"1", b"x")
    feed.resolve()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    capture.flush(after_ts=since)
    rows = capture.catalog().select("SELECT name, action, to_ts FROM log_tables ORDER BY table_id").read_all()
    found = [(row["name"], row["action"], row["to_ts"] is None) for row in rows.to_pylist()]
    assert found[0] == ("orders", "create", True)
    assert [found[1], found[-1]] == [("items", "create", False), ("items", "truncate", True)]
    capture.flush(after_ts=since)
    assert capture.catalog().select("SELECT name FROM log_tables").read_all().num_rows == len(rows)


def test_a_flush_of_nothing_tells_nothing(capture: Capture) -> None:
    assert [(file.format, file.entries) for file in capture.flush()] == [("log-regions", 0)]
    assert capture.checkpoint is None
    assert [file.format for file in capture.flush(tasks=())] == ["log-regions"]


def test_a_task_that_runs_again_finds_its_part(capture: Capture) -> None:
    lively().send(capture.client["bootstrap.servers"], capture.topic)
    job = capture.job()
    first, before = run(job, 2), everything(capture)
    assert run(job, 2) == first
    fold = capture.fold(job)
    folded, after = run(fold, 1), everything(capture)
    assert run(fold, 1) == folded
    assert everything(capture) == after
    assert before.items() <= after.items()


def test_a_capture_keeps_to_its_limit(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, waits = lively(), list[float]()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    clock = SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append)
    monkeypatch.setattr(pace, "time", clock)
    with pace.paced(1000):
        capture.job().run(0)
    assert sum(waits) * 1000 > feed.records(0)["value"].nbytes > 1000


def test_of_two_attempts_the_first_counts(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    lively().send(capture.client["bootstrap.servers"], capture.topic)
    job, write, others = capture.job(), sidecar.write_part, list[Any]()

    def late(storage: Any, path: str, rows: Any) -> Any:
        monkeypatch.setattr(part_task, "write_part", write)
        others.append(job.run(0))  # another attempt, from start to end
        return write(storage, path, rows)

    monkeypatch.setattr(part_task, "write_part", late)
    mine = job.run(0)
    assert others == [mine]
    named = {row.path for row in read_part(capture.storage, layout.parts_path("task", job.backup_id, 0))}
    assert {path for path in everything(capture) if "/log/" in path} == named


def test_tables_and_times_that_are_not_wanted_are_left_out(capture: Capture) -> None:
    feed = lively()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    capture.leave_out(2)
    wanted = [
        row
        for row in sent(feed)
        if row[2] != 2
        and (row[8] if row[3] == "write" else row[7]) <= 90
        and (row[3] == "default" or row[8] > 40 or row[2] == 0)
    ]
    job = capture.job(left_out="task/left", after_ts=40, until_ts=90)
    run(job, 2)
    paths = [layout.parts_path("task", job.backup_id, task) for task in range(2)]
    assert capture.records([row for path in paths for row in read_part(capture.storage, path)]) == wanted


@dataclass(frozen=True)
class Stopping(BrFeed):
    """A feed whose transactions are not whole from an offset on."""

    at: int = 0

    def decoder(self, storage: Any, of: Range, context: Any) -> Any:  # noqa: ARG002 (a feed's signature)
        inner = BrDecoder(of)

        def decode(records: pa.RecordBatch) -> Any:
            before = records.filter(pc.less(records["offset"], self.at))
            return replace(inner.decode(before), upto=self.at)

        return SimpleNamespace(decode=decode, finish=lambda: {"ended": of.partition})


def test_a_flush_ends_where_the_feed_says(capture: Capture) -> None:
    feed = lively()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    files = capture.flush(feed=Stopping((capture.topic,), at=50))
    assert capture.done == {0: 50, 1: 50}
    assert all(file.end_position <= 50 for file in files)
    files += capture.flush()
    assert capture.records(files) == sent(feed)


def test_an_event_that_cannot_be_read_leaves_nothing(capture: Capture) -> None:
    feed, bootstrap = lively(), capture.client["bootstrap.servers"]
    feed.send(bootstrap, capture.topic)
    produce(bootstrap, capture.topic, [(1, b"no event")])
    before = everything(capture)
    job = capture.job(held_bytes=1)
    [error] = [row["error"] for row in (b.to_pylist()[0] for b in job(numbers(2))) if row["error"]]
    assert f"{capture.topic}, partition 1, offset {len(feed.sent[1])}" in error
    with pytest.raises(Damaged):
        job.run(1)
    left = everything(capture).keys() - before.keys()
    assert not [path for path in left if "/000001" in path]
    named = {row.path for row in read_part(capture.storage, layout.parts_path("task", job.backup_id, 0))}
    assert {path for path in left if "/log/" in path} == named


def test_a_topic_recreated_after_the_plan_is_not_taken_for_the_planned_one(capture: Capture) -> None:
    """Its offsets start at 0 again: a flush got events of the new one, as if they were the old one's."""
    bootstrap = capture.client["bootstrap.servers"]
    lively().send(bootstrap, capture.topic)
    job, before = capture.job(), everything(capture)
    truth.delete_topic(bootstrap, capture.topic)
    truth.create_topic(bootstrap, capture.topic, 2)
    lively().send(bootstrap, capture.topic)
    for task in range(2):
        with pytest.raises(EnvironmentProblem, match=f"{capture.topic} was deleted and recreated"):
            job.run(task)
    assert everything(capture) == before


def big() -> ChangeFeed:
    """Events whose values do not get smaller by compressing."""
    feed = ChangeFeed(partitions=1, regions=40)
    tables = [feed.create_table("shop", f"t{n}") for n in range(40)]
    for number in range(80):
        with feed.begin() as txn:
            txn.put(tables[number % 40], b"%d" % number, os.urandom(40_000))
    feed.resolve()
    return feed


@pytest.mark.parametrize("full", ["scratch", "destination"])
def test_a_full_disk_leaves_nothing(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, full: str
) -> None:
    with small_disk(tmp_path, "2m") as small:
        folder = small / "backups" if full == "destination" else tmp_path / "backups"
        capture = Capture(broker.bootstrap, folder, topic("feed"), 1)
        feed = big()
        feed.send(broker.bootstrap, capture.topic)
        before = everything(capture)
        scratch = str(small) if full == "scratch" else None
        for held in (1, 1 << 30):
            with pytest.raises(EnvironmentProblem, match="No space left"):
                capture.job(scratch=scratch, held_bytes=held).run(0)
            assert everything(capture) == before
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        assert capture.records(capture.flush(scratch=scratch)) == sent(feed)


# --- what the fold tells


def tables(capture: Capture) -> list[tuple[Any, ...]]:
    """The names of tables as the catalog has them."""
    sql = "SELECT table_id, db, name, action, from_ts, covered_from FROM log_tables WHERE table_id > 0"
    found = capture.catalog().select(f"{sql} ORDER BY from_ts, table_id, action DESC").read_all()
    return [tuple(row.values()) for row in found.to_pylist()]


def test_names_follow_the_meta_keys(capture: Capture) -> None:
    """A value that was prewritten in one flush, committed in the next; a table that gets into the filter."""
    feed, bootstrap = ChangeFeed(partitions=2, regions=2), capture.client["bootstrap.servers"]
    orders, hidden = feed.create_table("shop", "orders"), feed.create_table("mysql", "hidden")
    filters: dict[str, tuple[str, ...]] = {"filters": ("!mysql.*",)}

    def flush(**changes: Any) -> None:
        feed.resolve()
        feed.send(bootstrap, capture.topic)
        capture.flush(fold=filters, **changes)

    flush()
    [(*_, created, _), (*_, made, _)] = tables(capture)
    assert tables(capture) == [
        (orders, "shop", "orders", "create", created, created - 1),
        (hidden, "mysql", "hidden", "create", made, NEVER),
    ]
    slow = feed.begin()
    slow.describe(b"mDB%d_Table%d" % (1, orders), {"id": orders, "name": "sales"})
    slow.prewrite()
    flush(cipher=KEYS.cipher)
    assert len(tables(capture)) == 2
    renamed = slow.commit()
    fresh = feed.truncate_table(orders)
    flush()
    assert tables(capture)[2:] == [
        (orders, "shop", "sales", "rename", renamed, created - 1),
        (orders, "shop", "sales", "drop", feed.now, created - 1),
        (fresh, "shop", "sales", "truncate", feed.now, feed.now - 1),
    ]
    with feed.begin() as txn:
        txn.put(hidden, b"k", b"not captured")
    feed.rename_table(hidden, "shop", "seen")
    renamed = feed.now
    capture.leave_out(hidden)
    ahead = feed.begin()
    ahead.put(hidden, b"k", b"not captured either, and later than the renaming")
    ahead.commit()
    flush(left_out="task/left")
    assert tables(capture)[5:] == [(hidden, "shop", "seen", "rename", renamed, NEVER)]
    late = feed.create_table("mysql", "late")
    flush()  # captures it, and no transaction is open that was there before
    assert {(row[0], row[5]) for row in tables(capture)[4:]} == {
        (fresh, tables(capture)[4][5]), (hidden, feed.now), (late, NEVER),
    }  # fmt: skip
    filters["filters"] = ()  # the task goes on with another filter
    with feed.begin() as txn:
        txn.put(late, b"k", b"captured")
    flush()
    assert {row[5] for row in tables(capture) if row[0] == late} == {feed.now}


def numbers(count: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = pa.table({"id": list(range(count))}).to_batches()
    return found
