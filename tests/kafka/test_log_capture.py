"""Captures a change feed from a real broker: each event is in one log file; a failed task leaves no files.

The jobs run in the test process, in the same way as in Spark's tasks.
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

from lakebackup.encryption.objects import BackupKey, DataKey, Keyring
from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.formats.logs.cipher import Cipher, LogKeys
from lakebackup.formats.logs.events import captured_schema
from lakebackup.formats.logs.logfile import FORMAT, read_log_file
from lakebackup.formats.logs.table_filter import TableFilter
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
    """A repository with an empty catalog, and a topic of a feed that is captured into it."""

    def __init__(self, bootstrap: str, folder: Path, topic: str, partitions: int) -> None:
        self.folder, self.topic = folder, topic
        self.storage = open_storage(str(folder))
        migrations = [
            Migration(version=n, name=name, applied_at=0) for n, name in enumerate(names("migrations"), 1)
        ]
        destination = destination_id(self.storage)
        made_up.write_catalog(
            folder, [*migrations, Destination(destination=destination, uri="", created_at=0)]
        )
        self.client = {"bootstrap.servers": bootstrap}
        self.destination, self.partitions = destination, partitions
        self.next_offsets = dict.fromkeys(range(partitions), 0)
        self.number, self.parent = 1, None
        self.checkpoint: int | None = None

    def job(self, **changes: Any) -> CaptureJob:
        """A job that captures the new events, with one task for each partition."""
        cluster = Cluster(self.client)
        [description] = cluster.describe([self.topic])
        _, regions = cluster.positions([description], "read_committed")
        ends = {int(region.region): region.end for region in regions}
        tasks = [
            (Range(self.topic, partition, description.epoch, self.next_offsets[partition], ends[partition]),)
            for partition in range(self.partitions)
        ]
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
        shared_names = "uri destination source backup_id number parent feed context"
        arguments: dict[str, Any] = {name: getattr(job, name) for name in shared_names.split()}
        arguments |= {"catalog": None, "tasks": len(job.tasks), "resolved_ts": self.checkpoint, "keys": KEYS}
        return FoldJob(**arguments | changes)

    def flush(self, *, fold: dict[str, Any] | None = None, **changes: Any) -> list[DataFile]:
        """Capture, fold and commit the new events. Returns the rows of the files."""
        job = self.job(**changes)
        rows = run(job, len(job.tasks))
        fold_rows = run(self.fold(job, **fold or {}), 1)
        for row in rows:
            for _, partition, _, end in json.loads(row["ends"]):
                self.next_offsets[partition] = end
        self._commit(job, [*rows, *fold_rows])
        self.checkpoint, self.parent = fold_rows[0]["checkpoint"], job.backup_id
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
        CatalogWriter(None, str(self.folder)).commit_backup(self.storage, manifest, source_lease=None)

    def records(self, files: list[DataFile], data_keys: Keyring | None = None) -> list[tuple[Any, ...]]:
        """The records of log files: (store, region, table, cf, op, key, value, start, commit, type)."""
        records = []
        for file in files:
            if file.format != FORMAT:
                continue
            store = file.path.rpartition("/")[2].partition(".log")[0]
            table = 0 if file.scope == "meta" else int(file.scope)
            file_columns = (store, int(file.region), table, file.cf, file.op)
            for batch in read_log_file(self.storage, file, KEYS, data_keys):
                rows = (tuple(row.values())[:5] for row in batch.to_pylist())
                records += [(*file_columns, *row) for row in rows]
        return sorted(records, key=repr)

    def exclude_tables(self, *tables: int) -> None:
        """Write the ids of tables that were never in the filter to `task/left`."""
        rows = pa.record_batch({"table_id": pa.array(tables, pa.int64())})
        write_rows(self.storage, "task/left", rows.schema, [rows])

    def catalog(self) -> CatalogReader:
        return CatalogReader(str(self.folder))


def run(job: CaptureJob | FoldJob, tasks: int) -> list[dict[str, Any]]:
    """Run a job in the test process. Returns the rows that Spark would get; raises the first task's error."""
    rows = [row for batch in job(numbers(tasks)) for row in batch.to_pylist()]
    raise_first(row["error"] for row in rows)
    return rows


def sent_records(feed: ChangeFeed) -> list[tuple[Any, ...]]:
    """Decode everything that the feed has sent. Returns records in the form of `Capture.records`."""
    sent_rows = []
    for partition in range(feed.partitions):
        decoder = BrDecoder(Range("t", partition, "e", 0, 0))
        records = decoder.decode(feed.records(partition)).records
        sent_rows += [tuple(row.values())[:10] for row in records.to_pylist()]
    assert captured_schema().names[:10] == [
        "store", "region", "table_id", "cf", "op", "key", "value", "start_ts", "commit_ts", "type",
    ]  # fmt: skip
    return sorted(sent_rows, key=repr)


@pytest.fixture
def capture(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Capture:
    return Capture(broker.bootstrap, tmp_path, topic("feed", partitions=2), 2)


def busy_feed() -> ChangeFeed:
    """A feed of two tables in four regions, with short values inside their writes and long ones apart."""
    feed = ChangeFeed(partitions=2, regions=4)
    orders, items = feed.create_table("shop", "orders"), feed.create_table("shop", "items")
    for number in range(60):
        with feed.begin() as txn:
            txn.put_row(orders, b"%d" % (number % 20), b"order " * (number % 9))
            txn.put_row(items, b"%d" % number, b"i")
            if number % 7 == 0:
                txn.delete(items, b"%d" % (number - 7))
    rolled_back = feed.begin()
    rolled_back.put_row(orders, b"never", b"a value that is never committed")
    rolled_back.prewrite()
    rolled_back.rollback()
    feed.resolve()
    return feed


@pytest.mark.parametrize(
    ("codec", "cipher"), [("zstd", None), ("lz4", Cipher("k1", b"x" * 32)), ("none", None)]
)
def test_every_event_is_in_a_log_file(capture: Capture, codec: str, cipher: Cipher | None) -> None:
    feed = busy_feed()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    files = capture.flush(codec=codec, cipher=cipher)
    assert capture.records(files) == sent_records(feed)
    assert capture.checkpoint == feed.last_ts
    logs = [file for file in files if file.format == FORMAT]
    assert {file.key_id for file in logs} == {cipher.key_id if cipher else None}
    assert {file.role for file in logs if file.scope == "meta"} == {"schema"}
    assert {(file.ts_domain, file.level, file.resolved_ts) for file in logs} == {("tso", 1, feed.last_ts)}


def stored_objects(capture: Capture) -> dict[str, bytes]:
    """All objects of the task, without the catalog's."""
    storage = capture.storage
    paths = (stored_object.path for stored_object in storage.list("task/"))
    return {path: storage.get(path) for path in paths}


def test_each_flush_continues_where_the_last_one_ended(capture: Capture) -> None:
    feed, files = ChangeFeed(partitions=2, regions=3), list[Any]()
    bootstrap = capture.client["bootstrap.servers"]
    table = feed.create_table("shop", "orders")
    for number in range(3):
        with feed.begin() as txn:
            txn.put_row(table, b"%d" % number, b"a long value")
        if number == 1:
            feed.move(feed.regions[1])
        feed.resolve()
        feed.send(bootstrap, capture.topic)
        files += capture.flush()
        assert capture.checkpoint == feed.last_ts
    assert capture.records(files) == sent_records(feed)
    assert {file.parent for file in files} == {None, backup_id(1), backup_id(2)}
    regions = (
        capture.catalog().select("SELECT region, store, resolved_ts, closed FROM log_regions").read_all()
    )
    expected = {(str(r.id), r.store, feed.last_ts, False) for r in feed.regions}
    assert {tuple(row.values()) for row in regions.to_pylist() if row["region"] != "0"} == expected


def test_a_log_after_a_full_knows_the_tables_of_the_full(capture: Capture) -> None:
    feed = ChangeFeed(partitions=2, regions=3)
    orders, items = feed.create_table("shop", "orders"), feed.create_table("shop", "items")
    full_ts = capture.checkpoint = feed.last_ts
    feed.truncate_table(items)
    with feed.begin() as txn:
        txn.put_row(orders, b"1", b"x")
    feed.resolve()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    capture.flush(after_ts=full_ts)
    rows = capture.catalog().select("SELECT name, action, to_ts FROM log_tables ORDER BY table_id").read_all()
    names = [(row["name"], row["action"], row["to_ts"] is None) for row in rows.to_pylist()]
    assert names[0] == ("orders", "create", True)
    assert [names[1], names[-1]] == [("items", "create", False), ("items", "truncate", True)]
    capture.flush(after_ts=full_ts)
    assert capture.catalog().select("SELECT name FROM log_tables").read_all().num_rows == len(rows)


def test_a_flush_without_events_writes_only_its_regions(capture: Capture) -> None:
    assert [(file.format, file.entries) for file in capture.flush()] == [("log-regions", 0)]
    assert capture.checkpoint is None
    assert [file.format for file in capture.flush(tasks=())] == ["log-regions"]


def test_a_repeated_task_returns_its_existing_part(capture: Capture) -> None:
    busy_feed().send(capture.client["bootstrap.servers"], capture.topic)
    job = capture.job()
    capture_rows, objects_after_capture = run(job, 2), stored_objects(capture)
    assert run(job, 2) == capture_rows
    fold = capture.fold(job)
    fold_rows, objects_after_fold = run(fold, 1), stored_objects(capture)
    assert run(fold, 1) == fold_rows
    assert stored_objects(capture) == objects_after_fold
    assert objects_after_capture.items() <= objects_after_fold.items()


def test_a_capture_obeys_its_rate_limit(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, waits_s = busy_feed(), list[float]()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    clock = SimpleNamespace(monotonic=lambda: sum(waits_s), sleep=waits_s.append)
    monkeypatch.setattr(pace, "time", clock)
    with pace.paced(1000):
        capture.job().run(0)
    assert sum(waits_s) * 1000 > feed.records(0)["value"].nbytes > 1000


def test_the_first_of_two_attempts_of_a_task_counts(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_feed().send(capture.client["bootstrap.servers"], capture.topic)
    job, write_part, other_results = capture.job(), sidecar.write_part, list[Any]()

    def write_after_other_attempt(storage: Any, path: str, rows: Any) -> Any:
        monkeypatch.setattr(part_task, "write_part", write_part)
        other_results.append(job.run(0))  # another attempt, from start to end
        return write_part(storage, path, rows)

    monkeypatch.setattr(part_task, "write_part", write_after_other_attempt)
    result = job.run(0)
    assert other_results == [result]
    part_paths = {row.path for row in read_part(capture.storage, layout.parts_path("task", job.backup_id, 0))}
    assert {path for path in stored_objects(capture) if "/log/" in path} == part_paths


def test_excluded_tables_and_times_are_not_captured(capture: Capture) -> None:
    feed = busy_feed()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    capture.exclude_tables(2)
    expected = [
        row
        for row in sent_records(feed)
        if row[2] != 2
        and (row[8] if row[3] == "write" else row[7]) <= 90
        and (row[3] == "default" or row[8] > 40 or row[2] == 0)
    ]
    job = capture.job(excluded_tables_path="task/left", after_ts=40, until_ts=90)
    run(job, 2)
    paths = [layout.parts_path("task", job.backup_id, task) for task in range(2)]
    assert capture.records([row for path in paths for row in read_part(capture.storage, path)]) == expected


@dataclass(frozen=True)
class StoppingFeed(BrFeed):
    """A feed that stops each flush before `end_offset`, as if later transactions were incomplete."""

    end_offset: int = 0

    def decoder(self, storage: Any, of: Range, context: Any) -> Any:  # noqa: ARG002 (a feed's signature)
        decoder = BrDecoder(of)

        def decode(records: pa.RecordBatch) -> Any:
            early_records = records.filter(pc.less(records["offset"], self.end_offset))
            return replace(decoder.decode(early_records), upto=self.end_offset)

        return SimpleNamespace(decode=decode, finish=lambda: {"ended": of.partition})


def test_a_flush_ends_where_the_feed_stops(capture: Capture) -> None:
    feed = busy_feed()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    files = capture.flush(feed=StoppingFeed((capture.topic,), end_offset=50))
    assert capture.next_offsets == {0: 50, 1: 50}
    assert all(file.end_position <= 50 for file in files)
    files += capture.flush()
    assert capture.records(files) == sent_records(feed)


def test_an_unreadable_event_fails_its_task_without_files(capture: Capture) -> None:
    feed, bootstrap = busy_feed(), capture.client["bootstrap.servers"]
    feed.send(bootstrap, capture.topic)
    produce(bootstrap, capture.topic, [(1, b"no event")])
    objects_before = stored_objects(capture)
    job = capture.job(held_bytes=1)
    [error] = [row["error"] for row in (batch.to_pylist()[0] for batch in job(numbers(2))) if row["error"]]
    assert f"{capture.topic}, partition 1, offset {len(feed.delivered_events[1])}" in error
    with pytest.raises(Damaged):
        job.run(1)
    new_paths = stored_objects(capture).keys() - objects_before.keys()
    assert not [path for path in new_paths if "/000001" in path]
    part_paths = {row.path for row in read_part(capture.storage, layout.parts_path("task", job.backup_id, 0))}
    assert {path for path in new_paths if "/log/" in path} == part_paths


def test_a_topic_recreated_after_the_plan_is_not_captured(capture: Capture) -> None:
    """The offsets of the new topic start at 0 again, so its events look like those of the old one."""
    bootstrap = capture.client["bootstrap.servers"]
    busy_feed().send(bootstrap, capture.topic)
    job, objects_before = capture.job(), stored_objects(capture)
    truth.delete_topic(bootstrap, capture.topic)
    truth.create_topic(bootstrap, capture.topic, 2)
    busy_feed().send(bootstrap, capture.topic)
    for task in range(2):
        with pytest.raises(EnvironmentProblem, match=f"{capture.topic} was deleted and recreated"):
            job.run(task)
    assert stored_objects(capture) == objects_before


def large_feed() -> ChangeFeed:
    """A feed of events whose values cannot be compressed."""
    feed = ChangeFeed(partitions=1, regions=40)
    tables = [feed.create_table("shop", f"t{n}") for n in range(40)]
    for number in range(80):
        with feed.begin() as txn:
            txn.put_row(tables[number % 40], b"%d" % number, os.urandom(40_000))
    feed.resolve()
    return feed


@pytest.mark.parametrize("full", ["scratch", "destination"])
def test_a_full_disk_leaves_no_files(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, full: str
) -> None:
    with small_disk(tmp_path, "2m") as small_folder:
        folder = small_folder / "backups" if full == "destination" else tmp_path / "backups"
        capture = Capture(broker.bootstrap, folder, topic("feed"), 1)
        feed = large_feed()
        feed.send(broker.bootstrap, capture.topic)
        objects_before = stored_objects(capture)
        scratch = str(small_folder) if full == "scratch" else None
        for held_bytes in (1, 1 << 30):
            with pytest.raises(EnvironmentProblem, match="No space left"):
                capture.job(scratch=scratch, held_bytes=held_bytes).run(0)
            assert stored_objects(capture) == objects_before
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_folder)], check=True)
        assert capture.records(capture.flush(scratch=scratch)) == sent_records(feed)


# --- names of tables that the fold records


def tables(capture: Capture) -> list[tuple[Any, ...]]:
    """The rows of table names in the catalog."""
    sql = "SELECT table_id, db, name, action, from_ts, covered_from FROM log_tables WHERE table_id > 0"
    rows = capture.catalog().select(f"{sql} ORDER BY from_ts, table_id, action DESC").read_all()
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_names_follow_the_meta_keys(capture: Capture) -> None:
    """One name is prewritten in one flush and committed in the next. One table is renamed into the filter."""
    feed, bootstrap = ChangeFeed(partitions=2, regions=2), capture.client["bootstrap.servers"]
    orders, hidden = feed.create_table("shop", "orders"), feed.create_table("mysql", "hidden")
    fold = {"tables": TableFilter(("!mysql.*",), has_schemas=False)}

    def flush(**changes: Any) -> None:
        feed.resolve()
        feed.send(bootstrap, capture.topic)
        capture.flush(fold=fold, **changes)

    flush()
    [(*_, orders_ts, _), (*_, hidden_ts, _)] = tables(capture)
    assert tables(capture) == [
        (orders, "shop", "orders", "create", orders_ts, orders_ts - 1),
        (hidden, "mysql", "hidden", "create", hidden_ts, NEVER),
    ]
    rename_txn = feed.begin()
    rename_txn.describe(b"mDB%d_Table%d" % (1, orders), {"id": orders, "name": "sales"})
    rename_txn.prewrite()
    flush(cipher=KEYS.cipher)
    assert len(tables(capture)) == 2
    renamed_ts = rename_txn.commit()
    truncated_id = feed.truncate_table(orders)
    flush()
    assert tables(capture)[2:] == [
        (orders, "shop", "sales", "rename", renamed_ts, orders_ts - 1),
        (orders, "shop", "sales", "drop", feed.last_ts, orders_ts - 1),
        (truncated_id, "shop", "sales", "truncate", feed.last_ts, feed.last_ts - 1),
    ]
    with feed.begin() as txn:
        txn.put_row(hidden, b"k", b"not captured")
    feed.rename_table(hidden, "shop", "seen")
    renamed_ts = feed.last_ts
    capture.exclude_tables(hidden)
    early_txn = feed.begin()
    early_txn.put_row(hidden, b"k", b"not captured either, and later than the renaming")
    early_txn.commit()
    flush(excluded_tables_path="task/left")
    assert tables(capture)[5:] == [(hidden, "shop", "seen", "rename", renamed_ts, NEVER)]
    late_table = feed.create_table("mysql", "late")
    flush()  # captures the renamed table, since no transaction from before the renaming is open
    assert {(row[0], row[5]) for row in tables(capture)[4:]} == {
        (truncated_id, tables(capture)[4][5]), (hidden, feed.last_ts), (late_table, NEVER),
    }  # fmt: skip
    fold["tables"] = TableFilter()  # the task continues with another filter
    with feed.begin() as txn:
        txn.put_row(late_table, b"k", b"captured")
    flush()
    assert {row[5] for row in tables(capture) if row[0] == late_table} == {feed.last_ts}


def numbers(count: int) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pa.table({"id": list(range(count))}).to_batches()
    return batches


def test_the_job_that_completes_a_flush_has_another_data_key(capture: Capture) -> None:
    """Both keys open their files. The meta keys are in clear, for the flushes after it."""
    feed = busy_feed()
    feed.send(capture.client["bootstrap.servers"], capture.topic)
    keys = [BackupKey(DataKey.random(), "task", backup_id(1)) for _ in range(2)]
    run(capture.job(key=keys[0]), 1)
    files = [row for row in capture.flush(key=keys[1]) if row.format == FORMAT]
    assert {file.key_id for file in files if file.role == "data"} == {key.key_id for key in keys}
    assert {file.key_id for file in files if file.role == "schema"} == {None}
    assert capture.records(files, Keyring(keys)) == sent_records(feed)
