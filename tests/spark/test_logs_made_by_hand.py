"""Logs made by hand: restores to any instant, and compactions, which do not change any restore."""

from __future__ import annotations

import base64
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.command_line import quiet
from tests.support.disks import flip
from tests.support.faults import expire_leases
from tests.support.looks import select_rows
from tests.support.made_changes import (
    MadeChanges,
    commit,
    delete,
    prewrite,
    put_change,
    rollback,
    table_name_row,
    truncated,
)
from tests.support.private import private_file
from tests.support.processes import Run

from lakebackup.errors import Busy, Damaged, NotFound, Refused, UsageProblem
from lakebackup.formats.logs.cipher import Cipher
from lakebackup.formats.logs.logfile import read_log_file
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rules import layout
from lakebackup.sql_engine.delta.table import append
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.logs.restore import job as restore
from lakebackup_jobs.logs.restore.apply import Changes
from lakebackup_jobs.logs.upkeep import compact
from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest
from lakebackup_jobs.logs.upkeep.truncate import run as run_truncate
from lakebackup_jobs.upkeep import optimize, verify
from lakebackup_jobs.upkeep.optimize import OptimizeRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands

    from lakebackup.rows.base import Row
    from lakebackup.storage import Storage

pytestmark = pytest.mark.spark


LIVE = "SELECT * FROM lifetimes WHERE format = 'log-arrow-1' AND gone_in IS NULL ORDER BY path"


@dataclass
class Log:
    """A log made by hand, and shorthands for its jobs."""

    spark: SparkSession
    root: Path
    changes: MadeChanges

    @property
    def folder(self) -> Path:
        return self.root.parent

    def _run(self, job: Any, request: object) -> dict[str, Any]:
        result: dict[str, Any] = job.run(request, spark=self.spark, reporter=quiet())
        return result

    def compact(self, **options: Any) -> dict[str, Any]:
        return self._run(compact, CompactLogRequest(destination=str(self.root), name="shop", **options))

    def restore(self, to: str = "out", **options: Any) -> dict[str, Any]:
        target = {"target": f"delta:{self.folder / to}", **options}
        return self._run(restore, LogRestoreRequest(destination=str(self.root), name="shop", **target))

    def rows(self, to: str = "out") -> list[dict[str, Any]]:
        """The rows of a restored table, in order, without the columns of names."""
        rows = [{n: row[n] for n in row if n not in ("db", "name")} for row in self._restored(to)]
        return sorted(rows, key=lambda row: (row["table_id"], row["key"]))

    def names(self, to: str = "out") -> set[tuple[Any, ...]]:
        return {(row["table_id"], row["db"], row["name"]) for row in self._restored(to)}

    def _restored(self, to: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            self.spark.read.format("delta").load(str(self.folder / to)).toArrow().to_pylist()
        )
        return rows

    def live(self) -> list[dict[str, Any]]:
        """The files of the log from which restores choose."""
        return select_rows(self.root, LIVE)

    def records(self) -> list[tuple[Any, ...]]:
        """Every record of the log, with the table, column family and operation of its file."""
        records = []
        for row in self.live():
            for batch in read_log_file(self.changes.storage, _StoredFile(row), None):
                kind = row["scope"], row["cf"], row["op"]
                records += [(*kind, *record.values()) for record in batch.to_pylist()]
        return sorted(records, key=repr)


class _StoredFile:
    def __init__(self, row: dict[str, Any]) -> None:
        self.__dict__.update(row)


def load(log_changes: MadeChanges, seed: int, flushes: int) -> None:
    """Add transactions of all kinds, some of which commit several flushes later."""
    rng, ts, waiting = random.Random(seed), 10, []
    for flush in range(flushes):
        changes = [put_change(0, b"mDB1", ts + 1, b"{}")]
        for _ in range(20):
            ts += rng.randint(2, 6)
            table, key = rng.choice([1, 2, 3]), rng.choice([b"a", b"b", b"c" * 70, b"d"])
            match rng.choice(["put", "put", "delete", "begin", "begin", "commit", "rollback", "empty"]):
                case "put":
                    changes.append(put_change(table, key, ts, b"%d" % ts))
                case "delete":
                    changes.append(delete(table, key, ts))
                case "begin":
                    changes.append(prewrite(table, key, ts, b"long %d" % ts))
                    waiting.append((table, key, ts))
                case "commit" if waiting:
                    changes.append(commit(*waiting.pop(rng.randrange(len(waiting))), ts))
                case "rollback" if waiting:
                    changes.append(rollback(*waiting.pop(0)))
                case "empty" if rng.random() < 0.3:
                    changes.append(truncated(table, ts))
        names = [table_name_row(table, f"t{table}", 1) for table in (1, 2, 3)] if not flush else []
        log_changes.flush(changes, ts, names=names)


def log_of(
    spark: SparkSession, empty_catalog: Path, folder: Path, seed: int, flushes: int, **options: Any
) -> Log:
    root = folder / "backups ü"
    shutil.copytree(empty_catalog, root / "catalog")
    changes = MadeChanges(root, CatalogWriter(spark, str(root)), **options)
    load(changes, seed, flushes)
    return Log(spark, root, changes)


@pytest.fixture
def log(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Log:
    """Twelve flushes of three tables."""
    return log_of(spark, empty_catalog, tmp_path, 7, 12)


@pytest.fixture
def small(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Log:
    """Two flushes of three tables."""
    return log_of(spark, empty_catalog, tmp_path, 1, 2)


def compacted_files(log: Log, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The data files after a compaction, one of each kind; compares their rows with those of the old
    files."""
    files_after = log.live()
    data = [row for row in files_after if row["role"] == "data"]
    kinds = {(row["scope"], row["cf"], row["op"]) for row in files if row["role"] == "data"}
    assert sorted((row["scope"], row["cf"], row["op"]) for row in data) == sorted(kinds)
    # Files of meta keys are not compacted.
    assert [row for row in files_after if row["role"] == "schema"] == [
        row for row in files if row["role"] == "schema"
    ]
    for row in data:
        sources = [r for r in files if (r["scope"], r["cf"], r["op"]) == (row["scope"], row["cf"], row["op"])]
        for name, pick in (("min_ts", min), ("max_ts", max)):
            assert row[name] == pick(r[name] for r in sources)
        begins = [r["min_begin_ts"] for r in sources if r["min_begin_ts"] is not None]
        assert row["min_begin_ts"] == min(begins, default=None)
        assert row["entries"] == sum(r["entries"] for r in sources)
        (first, *later_batches) = read_log_file(log.changes.storage, _StoredFile(row), None)
        keys = [key for batch in (first, *later_batches) for key in batch["key"].to_pylist()]
        assert keys == sorted(keys)
    return data


@pytest.mark.long
def test_compaction_keeps_records_and_merges_files(
    spark: SparkSession, empty_catalog: Path, tmp_path: Path
) -> None:
    log = log_of(spark, empty_catalog, tmp_path, 1, 4)
    changes, records_before, files, end = log.changes, log.records(), log.live(), log.changes.end_ts
    assert log.compact(dry_run=True)["files"] == 27
    result = log.compact()
    assert log.records() == records_before
    assert len(compacted_files(log, files)) == 8
    assert result["files"] == len([row for row in files if row["role"] == "data"]) == 27
    (span,) = select_rows(log.root, "SELECT status, from_ts, to_ts FROM coverage")
    assert span == {"status": "restorable", "from_ts": 0, "to_ts": end}
    # A second compaction finds nothing to do.
    assert log.compact()["backup_id"] is None
    # The next truncate deletes the old files.
    request = TruncateRequest(str(log.root), "shop", until=1, ranges_only=True, delete=True)
    truncate_result = run_truncate(request, spark=spark, reporter=quiet())
    assert (truncate_result["files"], truncate_result["compacted_files"]) == (27, 27)
    paths = {str(path.relative_to(log.root)) for path in (log.root / "shop" / "log").rglob("*.log*")}
    assert paths == {row["path"] for row in log.live()}
    # The log continues after the compaction.
    changes.number += 1  # the number of the compaction
    changes.parent, changes.parent_place = result["backup_id"], changes.number
    changes.flush([put_change(1, b"z", end + 5, b"z")], end + 9)
    assert all(row["intact"] for row in select_rows(log.root, "SELECT intact FROM backups"))
    start = end // 2
    expected = [row for row in changes.latest(end + 9) if row["commit_ts"] > start]
    log.restore("late", start_ts=start, end_ts=end + 9)
    assert log.rows("late") == expected
    assert log.names("late") == {(n, "shop", f"t{n}") for n in (1, 2, 3)}


@pytest.mark.long
def test_compaction_changes_no_restore_and_survives_a_rebuild(log: Log) -> None:
    records_before, files = log.records(), log.live()

    def restored(to: str) -> list[list[dict[str, Any]]]:
        spans = {f"{to}0": (0, log.changes.end_ts), f"{to}1": (217, 480)}
        for name, (start, end) in spans.items():
            log.restore(name, start_ts=start, end_ts=end)
        return [log.rows(name) for name in spans]

    expected = restored("before")
    assert log.compact(dry_run=True)["files"] > 60
    result = log.compact()
    assert log.records() == records_before
    assert len(compacted_files(log, files)) == 9
    assert result["files"] == len([row for row in files if row["role"] == "data"])
    assert restored("after") == expected
    assert log.changes.latest(log.changes.end_ts) == expected[0]
    files_after = log.live()
    shutil.rmtree(log.root / "catalog")
    assert rebuild(log.spark, str(log.root)).problems == []
    assert sorted(row["path"] for row in log.live()) == sorted(row["path"] for row in files_after)
    request = verify.VerifyRequest(destination=str(log.root), mode="decode", grace_ms=-3_600_000)
    assert verify.run(request, spark=log.spark, reporter=quiet())["findings"] == []


@pytest.mark.long  # kills a process with its own JVM
@pytest.mark.parametrize("cleaned_by", ["the next restore", "catalog optimize"])
def test_the_plan_of_a_killed_restore_is_deleted(small: Log, cleaned_by: str) -> None:
    def plan_files() -> list[Path]:
        return [path for path in (small.root / "restores").rglob("*") if path.is_file()]

    to, request = f"delta:{small.folder / 'out'}", OptimizeRequest(str(small.root))
    killed = Run(small, "log", "restore", "shop", "--repo", str(small.root), "--to", to)
    killed.kill_when(lambda: bool(plan_files()), "its plan is written")
    optimize.run(request, reporter=quiet())
    assert plan_files()  # its lease has not expired
    expire_leases(small.root)
    if cleaned_by == "catalog optimize":
        optimize.run(request, reporter=quiet())
        assert plan_files() == []
    small.restore()
    assert plan_files() == []
    assert len(small.rows()) > 0


@pytest.mark.long
def test_an_interrupted_compaction_leaves_nothing(small: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    files_before = small.live()
    with monkeypatch.context() as patched:
        patched.setattr(CatalogWriter, "commit_backup", _die)
        with pytest.raises(KeyboardInterrupt):
            small.compact()
    assert (small.root / layout.compact_path("shop")).exists()
    assert small.live() == files_before
    with monkeypatch.context() as patched:
        for module in ("tombstones", "writer", "manifest"):
            patched.setattr(f"lakebackup.store.{module}.mark", _die)
        with pytest.raises(KeyboardInterrupt):
            small.compact()
    # It was committed; the next run writes the marker and removes its temporary files.
    assert small.compact()["backup_id"] is None
    assert not (small.root / layout.compact_path("shop")).exists()
    shutil.rmtree(small.root / "catalog")
    rebuild_result = rebuild(small.spark, str(small.root))
    assert (rebuild_result.problems, rebuild_result.states) == ([], {"complete": 3})
    names = {row["backup_id"] for row in select_rows(small.root, "SELECT backup_id FROM backups")}
    shop = small.root / "shop"
    backup_paths = [
        path.relative_to(shop / "backups") for path in (shop / "backups").rglob("*") if path.is_file()
    ]
    assert {path.parts[0] for path in backup_paths} == names
    log_paths = {str(path.relative_to(small.root)) for path in (shop / "log").rglob("*.log*")}
    rows = select_rows(small.root, "SELECT path FROM lifetimes WHERE format = 'log-arrow-1'")
    assert log_paths == {row["path"] for row in rows}
    assert len(list((shop / "stream-metas").iterdir())) == 3
    assert not [path for path in shop.rglob("made/*") if path.is_file()]


@pytest.mark.parametrize(
    "inside",
    [pytest.param(False, marks=pytest.mark.long, id="before its commit"), pytest.param(True, id="inside it")],
)
def test_a_flush_after_an_interrupted_compaction_loses_nothing(
    small: Log, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    files_before = small.live()
    with monkeypatch.context() as patched:
        if inside:
            patched.setattr("lakebackup.store.writer.append", _append_all_but_backups)
        else:
            patched.setattr(CatalogWriter, "commit_backup", _die)
        with pytest.raises(KeyboardInterrupt):
            small.compact()
    small.changes.number = latest_number(CatalogReader(str(small.root)), "shop")
    ts = small.changes.end_ts
    flushed = small.changes.flush([put_change(1, b"z", ts + 5, b"z")], ts + 9)

    def other_paths() -> list[str]:
        return sorted(row["path"] for row in small.live() if row["backup_id"] != flushed)

    paths_before = sorted(row["path"] for row in files_before)
    assert other_paths() == paths_before
    request = TruncateRequest(str(small.root), "shop", until=1, ranges_only=True)
    assert run_truncate(request, spark=small.spark, reporter=quiet())["compacted_files"] == 0
    # A rebuilt catalog has the manifest of the interrupted compaction, perhaps with the flush's number.
    shutil.rmtree(small.root / "catalog")
    rebuild_result = rebuild(small.spark, str(small.root))
    assert (rebuild_result.problems, rebuild_result.states) == ([], {"complete": 3, "unconfirmed": 1})
    assert other_paths() == paths_before


def test_a_log_without_a_checkpoint_has_none_after_compaction(
    spark: SparkSession, empty_catalog: Path, tmp_path: Path
) -> None:
    root = tmp_path / "backups"
    shutil.copytree(empty_catalog, root / "catalog")
    changes = MadeChanges(root, CatalogWriter(spark, str(root)))
    for ts in (10, 20):
        changes.end_ts = None  # type: ignore[assignment] # the start of the log is not known yet
        changes.flush([put_change(1, b"a", ts, b"1")], 0)
    backup_id = Log(spark, root, changes).compact()["backup_id"]
    newest = CatalogReader(str(root)).first_row("log_newest", source="shop")
    assert newest is not None
    assert (newest["backup_id"], newest["start_ts"]) == (backup_id, None)
    assert select_rows(root, "SELECT * FROM coverage WHERE status = 'restorable'") == []


def test_compaction_keeps_encryption_and_later_flushes(
    spark: SparkSession,
    empty_catalog: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Commands,
) -> None:
    """By `lakebackup log compact`."""
    root, key = tmp_path / "backups", bytes(range(32))
    shutil.copytree(empty_catalog, root / "catalog")
    changes = MadeChanges(root, CatalogWriter(spark, str(root)), cipher=Cipher("k1", key))
    for ts in (10, 20, 30):
        changes.flush([put_change(1, b"a", ts, b"secret")], ts)
    keys_by_id = {"keys": {"k1": base64.b64encode(key).decode()}}
    keys = private_file(tmp_path / "keys.json", json.dumps(keys_by_id).encode())
    monkeypatch.setenv("LAKEBACKUP_LOG__KEYS_FILE", str(keys))
    command = ["log", "compact", "shop", "--endts", "20", "--codec", "lz4", "--repo", str(root)]
    result = cli.result(*command)
    row, late = sorted(Log(spark, root, changes).live(), key=lambda row: row["backup_id"] == changes.parent)
    assert (row["backup_id"], row["key_id"], row["entries"]) == (result["backup_id"], "k1", 2)
    assert late["backup_id"] == changes.parent  # it ended after --endts
    assert row["path"].endswith(".log.lz4.aes256gcm")
    assert b"secret" not in (root / row["path"]).read_bytes()
    request = verify.VerifyRequest(destination=str(root), mode="decode", keys_file=str(keys))
    assert verify.run(request, spark=spark, reporter=quiet())["findings"] == []
    assert CatalogReader(str(root)).rows("check_size", backup_ids="")[0]["encrypted"] == 4


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _append_all_but_backups(storage: Storage, table: str, rows: Sequence[Row], transaction: str) -> None:
    if table == "backups":
        raise KeyboardInterrupt
    append(storage, table, rows, transaction)


@pytest.fixture
def feed(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Log:
    """A log without flushes, with ts in milliseconds."""
    return log_of(spark, empty_catalog, tmp_path, 1, 0, domain="ms")


@pytest.fixture(params=["by one task", "by SQL"])
def small_or_large(request: pytest.FixtureRequest, feed: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """`feed`, restored as a small log and as a large one."""
    if request.param == "by SQL":
        monkeypatch.setattr(restore, "is_small", lambda _: False)
    return feed


@pytest.mark.parametrize("cuts", [1, pytest.param(2, marks=pytest.mark.long)])
def test_restores_to_any_instant_at_once_and_in_steps(small_or_large: Log, cuts: int) -> None:
    feed = small_or_large
    load(feed.changes, 1, 3)
    end = feed.changes.end_ts
    ends = [*sorted(random.Random(3).sample(range(12, end), cuts)), end]
    restored_ts = None
    for cut in ends:
        if cuts > 1:
            feed.restore(f"whole-{cut}", end_ts=cut)
            assert feed.rows(f"whole-{cut}") == feed.changes.latest(cut)
        feed.restore("pieces", start_ts=restored_ts, end_ts=cut)
        assert feed.rows("pieces") == feed.changes.latest(cut)
        restored_ts = cut
    result = feed.restore("pieces", start_ts=ends[-2], end_ts=end)
    assert result["done_before"]
    assert feed.names("pieces") <= {(n, "shop", f"t{n}") for n in (1, 2, 3)}


@pytest.mark.long
def test_restores_on_a_full_and_on_an_earlier_restore(feed: Log, cli: Commands) -> None:
    """By `lakebackup log snapshot`, `restore point` and `log merge`."""

    def lakebackup(*command: str) -> dict[str, Any]:
        return cli.result(*command, "--repo", feed.root)

    load(feed.changes, 10, 3)  # keys are deleted after the full, and changes lie at both its ends
    end, point = feed.changes.end_ts, str(feed.folder / "point")
    middle, later = end // 2, end - 20
    first = lakebackup("log", "snapshot", "shop", "--endts", str(middle))
    reader = CatalogReader.require(str(feed.root))
    (row,) = reader.rows("log_fulls", source="shop", to_ts=None)
    assert (row["backup_id"], row["end_ts"], row["number"]) == (first["backup_id"], middle, 4)
    assert first["entries"] == len(feed.changes.latest(middle))
    point_result = lakebackup("restore", "point", "shop", "--endts", str(later), "--to", f"delta:{point}")
    assert (point_result["full"], feed.rows("point")) == (first["backup_id"], feed.changes.latest(later))
    merge = ["log", "merge", "shop", "--read-snapshot-storage", point]
    merge += ["--write-snapshot-storage", str(feed.folder / "merged")]
    lakebackup(*merge)
    assert feed.rows("merged") == feed.changes.latest(end)
    assert feed.rows("point") == feed.changes.latest(later)
    assert lakebackup(*merge)["done_before"]


@pytest.mark.long
@pytest.mark.parametrize("feature", ["deletion vectors", "column mapping"])
def test_merge_reads_deletion_vectors_and_renamed_columns_of_a_foreign_table(feed: Log, feature: str) -> None:
    """The base is a table of another program: deleted rows stay deleted, and no column is read as NULL."""
    changes, spark, path = feed.changes, feed.spark, str(feed.folder / "foreign")
    changes.flush([put_change(1, b"a", 10, b"1"), put_change(1, b"b", 11, b"2")], 20)
    feed.restore("original", end_ts=20)
    rows = spark.read.format("delta").load(str(feed.folder / "original")).coalesce(1)
    table = f"delta.`{path}`"
    if feature == "deletion vectors":
        rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(path)
        spark.sql(f"DELETE FROM {table} WHERE key = X'62'")
        assert any("deletionVector" in line for line in _log_lines(path))
    else:
        renamed = rows.withColumnRenamed("value", "payload")
        renamed.write.format("delta").option("delta.columnMapping.mode", "name").save(path)
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN payload TO value")
    changes.flush([put_change(1, b"c", 25, b"3")], 30)
    feed.restore("merged", upon=path, start_ts=20)
    deleted = {b"b"} if feature == "deletion vectors" else set()
    assert feed.rows("merged") == [row for row in changes.latest(30) if row["key"] not in deleted]


def _log_lines(path: str) -> list[str]:
    commits = Path(path, "_delta_log").glob("*.json")
    return [line for commit in commits for line in commit.read_text("utf-8").splitlines()]


@pytest.mark.long
def test_names_follow_tables(feed: Log) -> None:
    changes = feed.changes
    first = [
        put_change(1, b"a", 10, b"1"),
        put_change(2, b"a", 11, b"2"),
        put_change(3, b"a", 12, b"3"),
        put_change(9, b"a", 13, b"9"),
    ]
    names = [
        table_name_row(1, "orders", 5),
        table_name_row(2, "orders_old", 5),
        table_name_row(3, "items", 5),
    ]
    changes.flush(first, 20, names=names)
    second = [put_change(4, b"n", 26, b"4"), put_change(3, b"b", 27, b"5")]
    later = [
        table_name_row(1, "orders_new", 22, "rename", covered_from=4),
        table_name_row(2, "orders_old", 23, "drop", covered_from=4),
        table_name_row(4, "items", 25, "truncate", replaces=3),
    ]
    changes.flush(second, 30, names=later)
    feed.restore("then", end_ts=20, filters=("shop.orders*",))
    assert feed.names("then") == {(1, "shop", "orders"), (2, "shop", "orders_old")}
    feed.restore("then", start_ts=20, end_ts=30, filters=("shop.orders*",))
    assert feed.names("then") == {(1, "shop", "orders_new")}
    feed.restore("all", end_ts=30)
    assert feed.names("all") == {(1, "shop", "orders_new"), (4, "shop", "items"), (9, None, None)}
    changes.flush([], 40)
    with pytest.raises(Refused, match=r"-f 'shop\.orders\*'"):
        feed.restore("then", start_ts=30)
    with pytest.raises(Refused, match=r"in \(0, 30\]"):
        feed.restore("all", start_ts=21, end_ts=25)


@pytest.mark.long
def test_a_stalled_restore_does_not_overwrite_a_later_one(feed: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.changes.flush([put_change(1, b"a", 10, b"1")], 20)
    feed.restore(end_ts=20)
    feed.changes.flush([put_change(1, b"a", 25, b"2")], 30)
    feed.changes.flush([put_change(1, b"a", 35, b"3")], 40)
    original_onto = Changes.changes_to

    def stall(changes: Changes, rows: Any) -> Any:
        monkeypatch.undo()
        for start, end in ((20, 30), (30, 40)):
            expire_leases(feed.root)
            feed.restore(start_ts=start, end_ts=end)
        return original_onto(changes, rows)

    monkeypatch.setattr(Changes, "changes_to", stall)
    with pytest.raises(Busy, match="Another restore has written to the table"):
        feed.restore(start_ts=20, end_ts=30)
    assert [row["value"] for row in feed.rows()] == [b"3"]


@pytest.mark.long
def test_key_ranges_and_spans_are_restored_into_a_folder(small_or_large: Log) -> None:
    feed, changes = small_or_large, small_or_large.changes
    changes.flush(
        [put_change(1, b"a", 10, b"1"), put_change(1, b"m", 11, b"2"), put_change(1, b"z", 12, b"3")], 20
    )
    changes.flush([truncated(1, 21), delete(1, b"m", 25), put_change(1, b"a", 26, b"4")], 30)
    to = f"dir:{feed.folder / 'out'}"
    options = {"target": to, "first_key": "61", "beyond_key": "6e"}
    feed.restore(end_ts=20, **options)
    feed.restore(start_ts=20, end_ts=30, **options)
    assert feed.restore(start_ts=20, end_ts=30, **options)["done_before"]

    def rows_of_span(span: str) -> set[tuple[Any, ...]]:
        rows = feed.spark.read.parquet(str(feed.folder / "out" / span)).collect()
        return {(bytes(row.key), row.value and bytes(row.value), row.commit_ts, row.type) for row in rows}

    assert rows_of_span("0-20") == {(b"a", b"1", 10, "P"), (b"m", b"2", 11, "P")}
    assert rows_of_span("20-30") == {(b"", None, 21, "T"), (b"a", b"4", 26, "P"), (b"m", None, 25, "D")}
    changes.flush([], 40)
    with pytest.raises(Refused, match="keys"):
        feed.restore(start_ts=30, target=to)
    (feed.folder / "other").mkdir()
    (feed.folder / "other" / "mine.txt").touch()
    with pytest.raises(Refused, match=r"mine\.txt"):
        feed.restore(target=f"dir:{feed.folder / 'other'}")


@pytest.mark.long
def test_damage_is_reported_and_nothing_is_written(small_or_large: Log) -> None:
    feed, changes = small_or_large, small_or_large.changes
    changes.flush([commit(1, b"lost", 5, 10), put_change(1, b"a", 11, b"1")], 20)
    with pytest.raises(Damaged, match=r"key 6c6f7374 of table 1.*start ts 5"):
        feed.restore("lost")
    changes.flush([put_change(1, b"lost", 25, b"found"), put_change(1, b"b", 26, b"2")], 30)
    feed.restore("later")
    values = {row["key"]: row["value"] for row in feed.rows("later")}
    assert values == {b"a": b"1", b"b": b"2", b"lost": b"found"}
    (file,) = feed.root.glob("shop/log/*2/01/*/1.log.zst")
    flip(file, -9)
    with pytest.raises(Damaged, match="sha256"):
        feed.restore("torn")
    file.unlink()
    with pytest.raises(NotFound):
        feed.restore("gone")
    assert not list(feed.folder.glob("[ltg]o*/_delta_log/*.json"))


def test_a_foreign_target_is_refused(feed: Log) -> None:
    feed.changes.flush([put_change(1, b"a", 10, b"1")], 20)
    feed.spark.range(3).write.format("delta").save(str(feed.folder / "out"))
    with pytest.raises(Refused, match="no restore of a log made it"):
        feed.restore()
    with pytest.raises(UsageProblem, match="no place"):
        feed.restore(target="file:out")
    (feed.folder / "cut").mkdir()
    (feed.folder / "cut" / "part-00000.parquet").write_bytes(b"what a killed restore left")
    feed.restore("cut")
    assert feed.rows("cut") == feed.changes.latest(20)
