"""Logs made by hand: restored to any instant, and compacted, which changes nothing of any restore."""

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
from tests.support.looks import seen
from tests.support.made_changes import MadeChanges, commit, delete, named, prewrite, put, rollback, truncated
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
    """A made log, and what is done with it."""

    spark: SparkSession
    root: Path
    made: MadeChanges

    @property
    def folder(self) -> Path:
        return self.root.parent

    def _run(self, job: Any, request: object) -> dict[str, Any]:
        done: dict[str, Any] = job.run(request, spark=self.spark, reporter=quiet())
        return done

    def compact(self, **asked: Any) -> dict[str, Any]:
        return self._run(compact, CompactLogRequest(destination=str(self.root), name="shop", **asked))

    def restore(self, to: str = "out", **asked: Any) -> dict[str, Any]:
        target = {"target": f"delta:{self.folder / to}", **asked}
        return self._run(restore, LogRestoreRequest(destination=str(self.root), name="shop", **target))

    def rows(self, to: str = "out") -> list[dict[str, Any]]:
        """What a restored table holds, in order, without names."""
        found = [{n: row[n] for n in row if n not in ("db", "name")} for row in self._restored(to)]
        return sorted(found, key=lambda row: (row["table_id"], row["key"]))

    def names(self, to: str = "out") -> set[tuple[Any, ...]]:
        return {(row["table_id"], row["db"], row["name"]) for row in self._restored(to)}

    def _restored(self, to: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            self.spark.read.format("delta").load(str(self.folder / to)).toArrow().to_pylist()
        )
        return rows

    def live(self) -> list[dict[str, Any]]:
        """Files of the log as restores choose from."""
        return seen(self.root, LIVE)

    def records(self) -> list[tuple[Any, ...]]:
        """Every record of the log, with what its file's row says of it."""
        found = []
        for row in self.live():
            for batch in read_log_file(self.made.storage, _Stored(row), None):
                place = row["scope"], row["cf"], row["op"]
                found += [(*place, *record.values()) for record in batch.to_pylist()]
        return sorted(found, key=repr)


class _Stored:
    def __init__(self, row: dict[str, Any]) -> None:
        self.__dict__.update(row)


def load(made: MadeChanges, seed: int, flushes: int) -> None:
    """Transactions of all kinds, some of which commit flushes later."""
    rng, ts, waiting = random.Random(seed), 10, []
    for flush in range(flushes):
        changes = [put(0, b"mDB1", ts + 1, b"{}")]
        for _ in range(20):
            ts += rng.randint(2, 6)
            table, key = rng.choice([1, 2, 3]), rng.choice([b"a", b"b", b"c" * 70, b"d"])
            match rng.choice(["put", "put", "delete", "begin", "begin", "commit", "rollback", "empty"]):
                case "put":
                    changes.append(put(table, key, ts, b"%d" % ts))
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
        names = [named(table, f"t{table}", 1) for table in (1, 2, 3)] if not flush else []
        made.flush(changes, ts, names=names)


def log_of(
    spark: SparkSession, empty_catalog: Path, folder: Path, seed: int, flushes: int, **how: Any
) -> Log:
    root = folder / "backups ü"
    shutil.copytree(empty_catalog, root / "catalog")
    made = MadeChanges(root, CatalogWriter(spark, str(root)), **how)
    load(made, seed, flushes)
    return Log(spark, root, made)


@pytest.fixture
def log(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Log:
    """Twelve flushes of three tables."""
    return log_of(spark, empty_catalog, tmp_path, 7, 12)


@pytest.fixture
def small(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Log:
    """Two flushes of three tables."""
    return log_of(spark, empty_catalog, tmp_path, 1, 2)


def brought_together(log: Log, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The data files after a compaction, one of each kind; checks what their rows say of those before."""
    after = log.live()
    data = [row for row in after if row["role"] == "data"]
    kinds = {(row["scope"], row["cf"], row["op"]) for row in files if row["role"] == "data"}
    assert sorted((row["scope"], row["cf"], row["op"]) for row in data) == sorted(kinds)
    # Meta keys stay as they were.
    assert [row for row in after if row["role"] == "schema"] == [
        row for row in files if row["role"] == "schema"
    ]
    for row in data:
        alike = [r for r in files if (r["scope"], r["cf"], r["op"]) == (row["scope"], row["cf"], row["op"])]
        for name, pick in (("min_ts", min), ("max_ts", max)):
            assert row[name] == pick(r[name] for r in alike)
        begins = [r["min_begin_ts"] for r in alike if r["min_begin_ts"] is not None]
        assert row["min_begin_ts"] == min(begins, default=None)
        assert row["entries"] == sum(r["entries"] for r in alike)
        (first, *rest) = read_log_file(log.made.storage, _Stored(row), None)
        keys = [key for batch in (first, *rest) for key in batch["key"].to_pylist()]
        assert keys == sorted(keys)
    return data


@pytest.mark.long
def test_records_stay_and_files_become_few(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> None:
    log = log_of(spark, empty_catalog, tmp_path, 1, 4)
    made, before, files, end = log.made, log.records(), log.live(), log.made.end_ts
    assert log.compact(dry_run=True)["files"] == 27
    done = log.compact()
    assert log.records() == before
    assert len(brought_together(log, files)) == 8
    assert done["files"] == len([row for row in files if row["role"] == "data"]) == 27
    (span,) = seen(log.root, "SELECT status, from_ts, to_ts FROM coverage")
    assert span == {"status": "restorable", "from_ts": 0, "to_ts": end}
    # Once more there is nothing to do.
    assert log.compact()["backup_id"] is None
    # The old files go with the next truncate.
    request = TruncateRequest(str(log.root), "shop", until=1, ranges_only=True, delete=True)
    gone = run_truncate(request, spark=spark, reporter=quiet())
    assert (gone["files"], gone["compacted_files"]) == (27, 27)
    kept = {str(path.relative_to(log.root)) for path in (log.root / "shop" / "log").rglob("*.log*")}
    assert kept == {row["path"] for row in log.live()}
    # The log goes on behind all this.
    made.number += 1  # that of the compaction
    made.parent, made.parent_place = done["backup_id"], made.number
    made.flush([put(1, b"z", end + 5, b"z")], end + 9)
    assert all(row["intact"] for row in seen(log.root, "SELECT intact FROM backups"))
    start = end // 2
    wanted = [row for row in made.latest(end + 9) if row["commit_ts"] > start]
    log.restore("late", start_ts=start, end_ts=end + 9)
    assert log.rows("late") == wanted
    assert log.names("late") == {(n, "shop", f"t{n}") for n in (1, 2, 3)}


@pytest.mark.long
def test_no_restore_gives_anything_else_and_a_rebuild_knows_what_left_the_log(log: Log) -> None:
    before, files = log.records(), log.live()

    def restored(to: str) -> list[list[dict[str, Any]]]:
        spans = {f"{to}0": (0, log.made.end_ts), f"{to}1": (217, 480)}
        for name, (start, end) in spans.items():
            log.restore(name, start_ts=start, end_ts=end)
        return [log.rows(name) for name in spans]

    expected = restored("before")
    assert log.compact(dry_run=True)["files"] > 60
    done = log.compact()
    assert log.records() == before
    assert len(brought_together(log, files)) == 9
    assert done["files"] == len([row for row in files if row["role"] == "data"])
    assert restored("after") == expected
    assert log.made.latest(log.made.end_ts) == expected[0]
    after = log.live()
    shutil.rmtree(log.root / "catalog")
    assert rebuild(log.spark, str(log.root)).problems == []
    assert sorted(row["path"] for row in log.live()) == sorted(row["path"] for row in after)
    request = verify.VerifyRequest(destination=str(log.root), mode="decode", grace_ms=-3_600_000)
    assert verify.run(request, spark=log.spark, reporter=quiet())["findings"] == []


@pytest.mark.long  # a JVM of its own, which is killed
@pytest.mark.parametrize("cleaned_by", ["the next restore", "catalog optimize"])
def test_the_plan_of_a_killed_restore_goes(small: Log, cleaned_by: str) -> None:
    def left() -> list[Path]:
        return [path for path in (small.root / "restores").rglob("*") if path.is_file()]

    to, request = f"delta:{small.folder / 'out'}", OptimizeRequest(str(small.root))
    killed = Run(small, "log", "restore", "shop", "--repo", str(small.root), "--to", to)
    killed.kill_when(lambda: bool(left()), "its plan is written")
    small._run(optimize, request)
    assert left()  # its lease has not run out
    expire_leases(small.root)
    if cleaned_by == "catalog optimize":
        small._run(optimize, request)
        assert left() == []
    small.restore()
    assert left() == []
    assert len(small.rows()) > 0


@pytest.mark.long
def test_one_that_was_cut_off_leaves_nothing(small: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    before = small.live()
    with monkeypatch.context() as patched:
        patched.setattr(CatalogWriter, "commit_backup", _die)
        with pytest.raises(KeyboardInterrupt):
            small.compact()
    assert (small.root / layout.compact_path("shop")).exists()
    assert small.live() == before
    with monkeypatch.context() as patched:
        patched.setattr("lakebackup.store.manifest.mark", _die)
        with pytest.raises(KeyboardInterrupt):
            small.compact()
    # It was committed; the marker and what it kept aside are seen to by the next.
    assert small.compact()["backup_id"] is None
    assert not (small.root / layout.compact_path("shop")).exists()
    shutil.rmtree(small.root / "catalog")
    made = rebuild(small.spark, str(small.root))
    assert (made.problems, made.states) == ([], {"complete": 3})
    names = {row["backup_id"] for row in seen(small.root, "SELECT backup_id FROM backups")}
    shop = small.root / "shop"
    left = [path.relative_to(shop / "backups") for path in (shop / "backups").rglob("*") if path.is_file()]
    assert {path.parts[0] for path in left} == names
    stored = {str(path.relative_to(small.root)) for path in (shop / "log").rglob("*.log*")}
    known = seen(small.root, "SELECT path FROM lifetimes WHERE format = 'log-arrow-1'")
    assert stored == {row["path"] for row in known}
    assert len(list((shop / "stream-metas").iterdir())) == 3
    assert not [path for path in shop.rglob("made/*") if path.is_file()]


@pytest.mark.parametrize(
    "inside",
    [pytest.param(False, marks=pytest.mark.long, id="before its commit"), pytest.param(True, id="inside it")],
)
def test_one_that_died_and_a_flush_after_it_lose_nothing(
    small: Log, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    before = small.live()
    with monkeypatch.context() as patched:
        if inside:
            patched.setattr("lakebackup.store.writer.append", _append_all_but_backups)
        else:
            patched.setattr(CatalogWriter, "commit_backup", _die)
        with pytest.raises(KeyboardInterrupt):
            small.compact()
    small.made.number = latest_number(CatalogReader(str(small.root)), "shop")
    ts = small.made.end_ts
    flushed = small.made.flush([put(1, b"z", ts + 5, b"z")], ts + 9)

    def others() -> list[str]:
        return sorted(row["path"] for row in small.live() if row["backup_id"] != flushed)

    kept = sorted(row["path"] for row in before)
    assert others() == kept
    request = TruncateRequest(str(small.root), "shop", until=1, ranges_only=True)
    assert run_truncate(request, spark=small.spark, reporter=quiet())["compacted_files"] == 0
    # A catalog that is made again knows the manifest of what died, perhaps with the number of the flush.
    shutil.rmtree(small.root / "catalog")
    made = rebuild(small.spark, str(small.root))
    assert (made.problems, made.states) == ([], {"complete": 3, "unconfirmed": 1})
    assert others() == kept


def test_a_log_without_a_checkpoint_has_none_afterwards(
    spark: SparkSession, empty_catalog: Path, tmp_path: Path
) -> None:
    root = tmp_path / "backups"
    shutil.copytree(empty_catalog, root / "catalog")
    made = MadeChanges(root, CatalogWriter(spark, str(root)))
    for ts in (10, 20):
        made.end_ts = None  # type: ignore[assignment] # where the log begins is not known yet
        made.flush([put(1, b"a", ts, b"1")], 0)
    backup_id = Log(spark, root, made).compact()["backup_id"]
    newest = CatalogReader(str(root)).one("log_newest", source="shop")
    assert newest is not None
    assert (newest["backup_id"], newest["start_ts"]) == (backup_id, None)
    assert seen(root, "SELECT * FROM coverage WHERE status = 'restorable'") == []


def test_what_is_encrypted_stays_encrypted_and_later_flushes_stay_as_they_are(
    spark: SparkSession,
    empty_catalog: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Commands,
) -> None:
    """By `lakebackup log compact`."""
    root, key = tmp_path / "backups", bytes(range(32))
    shutil.copytree(empty_catalog, root / "catalog")
    made = MadeChanges(root, CatalogWriter(spark, str(root)), cipher=Cipher("k1", key))
    for ts in (10, 20, 30):
        made.flush([put(1, b"a", ts, b"secret")], ts)
    table = {"keys": {"k1": base64.b64encode(key).decode()}}
    keys = private_file(tmp_path / "keys.json", json.dumps(table).encode())
    monkeypatch.setenv("LAKEBACKUP_LOG__KEYS_FILE", str(keys))
    command = ["log", "compact", "shop", "--endts", "20", "--codec", "lz4", "--repo", str(root)]
    done = cli.told(*command)
    row, late = sorted(Log(spark, root, made).live(), key=lambda row: row["backup_id"] == made.parent)
    assert (row["backup_id"], row["key_id"], row["entries"]) == (done["backup_id"], "k1", 2)
    assert late["backup_id"] == made.parent  # it ended after the ts
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
    """A log without flushes, of milliseconds."""
    return log_of(spark, empty_catalog, tmp_path, 1, 0, domain="ms")


@pytest.fixture(params=["by one task", "by SQL"])
def either(request: pytest.FixtureRequest, feed: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """`feed`, restored as a small log and as a large one."""
    if request.param == "by SQL":
        monkeypatch.setattr(Changes, "is_small", False)
    return feed


@pytest.mark.parametrize("cuts", [1, pytest.param(2, marks=pytest.mark.long)])
def test_any_instant_alone_and_in_pieces(either: Log, cuts: int) -> None:
    feed = either
    load(feed.made, 1, 3)
    end = feed.made.end_ts
    ends = [*sorted(random.Random(3).sample(range(12, end), cuts)), end]
    before = None
    for cut in ends:
        if cuts > 1:
            feed.restore(f"whole-{cut}", end_ts=cut)
            assert feed.rows(f"whole-{cut}") == feed.made.latest(cut)
        feed.restore("pieces", start_ts=before, end_ts=cut)
        assert feed.rows("pieces") == feed.made.latest(cut)
        before = cut
    done = feed.restore("pieces", start_ts=ends[-2], end_ts=end)
    assert done["done_before"]
    assert feed.names("pieces") <= {(n, "shop", f"t{n}") for n in (1, 2, 3)}


@pytest.mark.long
def test_upon_a_full_and_upon_a_restore(feed: Log, cli: Commands) -> None:
    """By `lakebackup log snapshot`, `restore point` and `log merge`."""

    def lakebackup(*command: str) -> dict[str, Any]:
        return cli.told(*command, "--repo", feed.root)

    load(feed.made, 10, 3)  # keys are deleted behind the full, and changes stand at both its ends
    end, point = feed.made.end_ts, str(feed.folder / "point")
    middle, later = end // 2, end - 20
    first = lakebackup("log", "snapshot", "shop", "--endts", str(middle))
    reader = CatalogReader.require(str(feed.root))
    (row,) = reader.rows("log_fulls", source="shop", to_ts=None)
    assert (row["backup_id"], row["end_ts"], row["number"]) == (first["backup_id"], middle, 4)
    assert first["entries"] == len(feed.made.latest(middle))
    whole = lakebackup("restore", "point", "shop", "--endts", str(later), "--to", f"delta:{point}")
    assert (whole["full"], feed.rows("point")) == (first["backup_id"], feed.made.latest(later))
    merge = ["log", "merge", "shop", "--read-snapshot-storage", point]
    merge += ["--write-snapshot-storage", str(feed.folder / "merged")]
    lakebackup(*merge)
    assert feed.rows("merged") == feed.made.latest(end)
    assert feed.rows("point") == feed.made.latest(later)
    assert lakebackup(*merge)["done_before"]


@pytest.mark.long
@pytest.mark.parametrize("feature", ["deletion vectors", "column mapping"])
def test_merge_reads_deletion_vectors_and_renamed_columns_of_a_foreign_table(feed: Log, feature: str) -> None:
    """The base is a table of another program: deleted rows stay deleted, no column reads as NULL."""
    made, spark, path = feed.made, feed.spark, str(feed.folder / "foreign")
    made.flush([put(1, b"a", 10, b"1"), put(1, b"b", 11, b"2")], 20)
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
    made.flush([put(1, b"c", 25, b"3")], 30)
    feed.restore("merged", upon=path, start_ts=20)
    deleted = {b"b"} if feature == "deletion vectors" else set()
    assert feed.rows("merged") == [row for row in made.latest(30) if row["key"] not in deleted]


def _log_lines(path: str) -> list[str]:
    commits = Path(path, "_delta_log").glob("*.json")
    return [line for commit in commits for line in commit.read_text("utf-8").splitlines()]


@pytest.mark.long
def test_names_follow_tables(feed: Log) -> None:
    made = feed.made
    first = [put(1, b"a", 10, b"1"), put(2, b"a", 11, b"2"), put(3, b"a", 12, b"3"), put(9, b"a", 13, b"9")]
    names = [named(1, "orders", 5), named(2, "orders_old", 5), named(3, "items", 5)]
    made.flush(first, 20, names=names)
    second = [put(4, b"n", 26, b"4"), put(3, b"b", 27, b"5")]
    later = [
        named(1, "orders_new", 22, "rename", covered_from=4),
        named(2, "orders_old", 23, "drop", covered_from=4),
        named(4, "items", 25, "truncate", replaces=3),
    ]
    made.flush(second, 30, names=later)
    feed.restore("then", end_ts=20, filters=("shop.orders*",))
    assert feed.names("then") == {(1, "shop", "orders"), (2, "shop", "orders_old")}
    feed.restore("then", start_ts=20, end_ts=30, filters=("shop.orders*",))
    assert feed.names("then") == {(1, "shop", "orders_new")}
    feed.restore("all", end_ts=30)
    assert feed.names("all") == {(1, "shop", "orders_new"), (4, "shop", "items"), (9, None, None)}
    made.flush([], 40)
    with pytest.raises(Refused, match=r"-f 'shop\.orders\*'"):
        feed.restore("then", start_ts=30)
    with pytest.raises(Refused, match=r"in \(0, 30\]"):
        feed.restore("all", start_ts=21, end_ts=25)


@pytest.mark.long
def test_a_restore_that_stalled_writes_nothing_over_a_later_one(
    feed: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.made.flush([put(1, b"a", 10, b"1")], 20)
    feed.restore(end_ts=20)
    feed.made.flush([put(1, b"a", 25, b"2")], 30)
    feed.made.flush([put(1, b"a", 35, b"3")], 40)
    onto = Changes.onto

    def late(changes: Changes, held: Any) -> Any:
        monkeypatch.undo()
        for start, end in ((20, 30), (30, 40)):
            expire_leases(feed.root)
            feed.restore(start_ts=start, end_ts=end)
        return onto(changes, held)

    monkeypatch.setattr(Changes, "onto", late)
    with pytest.raises(Busy, match="Another restore has written to the table"):
        feed.restore(start_ts=20, end_ts=30)
    assert [row["value"] for row in feed.rows()] == [b"3"]


@pytest.mark.long
def test_keys_and_spans_into_a_folder(either: Log) -> None:
    feed, made = either, either.made
    made.flush([put(1, b"a", 10, b"1"), put(1, b"m", 11, b"2"), put(1, b"z", 12, b"3")], 20)
    made.flush([truncated(1, 21), delete(1, b"m", 25), put(1, b"a", 26, b"4")], 30)
    to = f"dir:{feed.folder / 'out'}"
    asked = {"target": to, "first_key": "61", "beyond_key": "6e"}
    feed.restore(end_ts=20, **asked)
    feed.restore(start_ts=20, end_ts=30, **asked)
    assert feed.restore(start_ts=20, end_ts=30, **asked)["done_before"]

    def held(span: str) -> set[tuple[Any, ...]]:
        rows = feed.spark.read.parquet(str(feed.folder / "out" / span)).collect()
        return {(bytes(row.key), row.value and bytes(row.value), row.commit_ts, row.type) for row in rows}

    assert held("0-20") == {(b"a", b"1", 10, "P"), (b"m", b"2", 11, "P")}
    assert held("20-30") == {(b"", None, 21, "T"), (b"a", b"4", 26, "P"), (b"m", None, 25, "D")}
    made.flush([], 40)
    with pytest.raises(Refused, match="keys"):
        feed.restore(start_ts=30, target=to)
    (feed.folder / "other").mkdir()
    (feed.folder / "other" / "mine.txt").touch()
    with pytest.raises(Refused, match=r"mine\.txt"):
        feed.restore(target=f"dir:{feed.folder / 'other'}")


@pytest.mark.long
def test_what_is_damaged_is_told_and_nothing_is_written(either: Log) -> None:
    feed, made = either, either.made
    made.flush([commit(1, b"lost", 5, 10), put(1, b"a", 11, b"1")], 20)
    with pytest.raises(Damaged, match=r"key 6c6f7374 of table 1.*start ts 5"):
        feed.restore("lost")
    made.flush([put(1, b"lost", 25, b"found"), put(1, b"b", 26, b"2")], 30)
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


def test_a_target_of_somebody_else_is_refused(feed: Log) -> None:
    feed.made.flush([put(1, b"a", 10, b"1")], 20)
    feed.spark.range(3).write.format("delta").save(str(feed.folder / "out"))
    with pytest.raises(Refused, match="no restore of a log made it"):
        feed.restore()
    with pytest.raises(UsageProblem, match="no place"):
        feed.restore(target="file:out")
    (feed.folder / "cut").mkdir()
    (feed.folder / "cut" / "part-00000.parquet").write_bytes(b"what a killed restore left")
    feed.restore("cut")
    assert feed.rows("cut") == feed.made.latest(20)
