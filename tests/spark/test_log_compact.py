"""Small log files become few large ones, and no restore gives anything else than before."""

from __future__ import annotations

import base64
import json
import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.command_line import quiet
from tests.support.looks import seen
from tests.support.made_changes import MadeChanges, commit, delete, named, prewrite, put, rollback, truncated

from lakebackup.formats.logs.cipher import Cipher
from lakebackup.formats.logs.logfile import read_log_file
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rules import layout
from lakebackup.sql_engine.delta import append
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number
from lakebackup_jobs.logs.restore import job as restore
from lakebackup_jobs.logs.upkeep import compact
from lakebackup_jobs.logs.upkeep.compact import CompactLogRequest
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest
from lakebackup_jobs.logs.upkeep.truncate import run as run_truncate
from lakebackup_jobs.upkeep import verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.command_line import Commands

    from lakebackup.rows.tables import Row
    from lakebackup.storage import Storage

pytestmark = pytest.mark.spark
LIVE = "SELECT * FROM lifetimes WHERE format = 'log-arrow-1' AND gone_in IS NULL ORDER BY path"


@dataclass
class Log:
    """A made log, and what is done with it."""

    spark: SparkSession
    root: Path
    made: MadeChanges

    def compact(self, **asked: Any) -> dict[str, Any]:
        request = CompactLogRequest(destination=str(self.root), name="shop", **asked)
        return compact.run(request, spark=self.spark, reporter=quiet())

    def live(self) -> list[dict[str, Any]]:
        """Files of the log as restores choose from."""
        return seen(self.root, LIVE)

    def records(self) -> list[tuple[Any, ...]]:
        """Every record of the log, with what its file's row says of it."""
        found = []
        for row in self.live():
            file = dict(row)
            for batch in read_log_file(self.made.storage, _Stored(file), None):
                place = file["scope"], file["cf"], file["op"]
                found += [(*place, *record.values()) for record in batch.to_pylist()]
        return sorted(found, key=repr)

    def restored(self, to: str, start_ts: int, end_ts: int) -> list[dict[str, Any]]:
        target = self.root.parent / to
        request = LogRestoreRequest(
            str(self.root), "shop", f"delta:{target}", start_ts=start_ts, end_ts=end_ts
        )
        restore.run(request, spark=self.spark, reporter=quiet())
        rows = self.spark.read.format("delta").load(str(target)).toArrow().to_pylist()
        return sorted(rows, key=lambda row: (row["table_id"], row["key"]))


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


def log_of(spark: SparkSession, empty_catalog: Path, folder: Path, seed: int, flushes: int) -> Log:
    root = folder / "backups ü"
    shutil.copytree(empty_catalog, root / "catalog")
    made = MadeChanges(root, CatalogWriter.open(spark, str(root)))
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
    found = log.restored("late", start, end + 9)
    assert [{name: row[name] for name in wanted[0]} for row in found] == wanted
    assert {(row["table_id"], row["name"]) for row in found} == {(1, "t1"), (2, "t2"), (3, "t3")}


@pytest.mark.long
def test_no_restore_gives_anything_else_and_a_rebuild_knows_what_left_the_log(log: Log) -> None:
    before, files = log.records(), log.live()
    ranges = [(0, log.made.end_ts), (217, 480)]
    expected = [log.restored(f"before{i}", *span) for i, span in enumerate(ranges)]
    assert log.compact(dry_run=True)["files"] > 60
    done = log.compact()
    assert log.records() == before
    assert len(brought_together(log, files)) == 9
    assert done["files"] == len([row for row in files if row["role"] == "data"])
    assert [log.restored(f"after{i}", *span) for i, span in enumerate(ranges)] == expected
    wanted = log.made.latest(log.made.end_ts)
    assert [{name: row[name] for name in wanted[0]} for row in expected[0]] == wanted
    after = log.live()
    shutil.rmtree(log.root / "catalog")
    assert rebuild(log.spark, str(log.root)).problems == []
    assert sorted(row["path"] for row in log.live()) == sorted(row["path"] for row in after)
    request = verify.VerifyRequest(destination=str(log.root), mode="decode", grace_ms=-3_600_000)
    assert verify.run(request, spark=log.spark, reporter=quiet())["findings"] == []


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
    made = MadeChanges(root, CatalogWriter.open(spark, str(root)))
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
    made = MadeChanges(root, CatalogWriter.open(spark, str(root)), cipher=Cipher("k1", key))
    for ts in (10, 20, 30):
        made.flush([put(1, b"a", ts, b"secret")], ts)
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": {"k1": base64.b64encode(key).decode()}}))
    monkeypatch.setenv("LAKEBACKUP_LOG__KEYS_FILE", str(keys))
    command = ["log", "compact", "shop", "--until", "20", "--lz4", "--from", str(root)]
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
