"""Checkpoints of a RocksDB that goes on being written: each is backed up, restored, and opens as it was."""

from __future__ import annotations

import io
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from rocksdict import AccessType, Checkpoint, Options, Rdict

from lakebackup.plan.restore_snapshot import SnapshotRestoreRequest
from lakebackup.store import CatalogReader
from lakebackup_jobs import backup_snapshot, restore_snapshot
from lakebackup_jobs.backup_snapshot import SnapshotRequest
from lakebackup_jobs.progress import QuietReporter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROUNDS, ANEW = 20, 12
TABLET = "table-t1/tablet-a1.snapshots"


def quiet() -> QuietReporter:
    return QuietReporter(io.StringIO(), io.StringIO())


class Database:
    """A RocksDB with keys of bytes, and what it should hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[bytes, bytes] = {}
        self.open()

    def open(self) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_disable_auto_compactions(True)
        self.db = Rdict(str(self.path), options)

    def write(self, dice: random.Random) -> None:
        """Some keys new, some changed, some deleted; every few rounds all is compacted into new files."""
        for _ in range(200):
            key = b"key%04d" % dice.randrange(1000)
            if self.held and dice.random() < 0.2:
                key = dice.choice(sorted(self.held))
                del self.db[key], self.held[key]
            else:
                self.held[key] = self.db[key] = dice.randbytes(dice.randrange(200))
        self.db.flush()
        if dice.random() < 0.2:
            self.db.compact_range(None, None)

    def begin_anew(self) -> None:
        """As after a loss: the numbers of its files begin again, with other contents."""
        self.db.close()
        shutil.rmtree(self.path)
        self.held = {}
        self.open()


def contents(path: Path) -> dict[bytes, bytes]:
    db = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        return dict(db.items())
    finally:
        db.close()


@pytest.fixture(scope="module")
def twenty(
    empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> tuple[Path, list[tuple[str, dict[bytes, bytes]]]]:
    """A destination with twenty backups: the id of each, and what the database held then."""
    tmp = tmp_path_factory.mktemp("rocksdb")
    shutil.copytree(empty_catalog, tmp / "backups/catalog")
    (tmp / "data" / TABLET).mkdir(parents=True)
    dice, database = random.Random(20), Database(tmp / "db")
    made = []
    for number in range(ROUNDS):
        if number == ANEW:
            database.begin_anew()
        database.write(dice)
        Checkpoint(database.db).create_checkpoint(str(tmp / "data" / TABLET / f"s{number:02d}"))
        request = SnapshotRequest(
            destination=str(tmp / "backups"), paths=(str(tmp / "data"),), source="rocks", layout="yugabyte"
        )
        told = backup_snapshot.run(request, spark=spark, reporter=quiet())
        made.append((str(told["backup_id"]), dict(database.held)))
    database.db.close()
    shutil.rmtree(tmp / "data")
    return tmp / "backups", made


def restore(backups: Path, folder: Path, spark: SparkSession, **asked: Any) -> dict[str, Any]:
    request = SnapshotRestoreRequest(str(backups), str(folder), form="flat", **asked)
    return restore_snapshot.run(request, spark=spark, reporter=quiet())


def test_each_of_twenty_backups_opens_and_holds_what_the_database_held(
    twenty: tuple[Path, list[tuple[str, dict[bytes, bytes]]]], tmp_path: Path, spark: SparkSession
) -> None:
    backups, made = twenty
    for number, (backup_id, held) in enumerate(made):
        out = tmp_path / f"{number:02d}"
        restore(backups, out, spark, backup=backup_id)
        assert contents(out) == held, backup_id


def test_files_are_stored_once_and_a_name_that_came_again_is_another_file(
    twenty: tuple[Path, list[tuple[str, dict[bytes, bytes]]]],
) -> None:
    backups, _ = twenty
    stored = """
        SELECT COUNT(*) AS files, COUNT(DISTINCT sha256) AS contents FROM snapshot_files
        WHERE name LIKE '%.sst'
    """
    (tables,) = CatalogReader.require(str(backups)).select(stored).read_all().to_pylist()
    assert tables["files"] == tables["contents"] >= ROUNDS
    again = f"""
        SELECT a.name FROM snapshot_files AS a JOIN snapshot_files AS b ON a.name = b.name
        WHERE a.name LIKE '%.sst' AND a.added_in <= {ANEW} AND b.added_in > {ANEW} AND a.sha256 <> b.sha256
    """
    assert CatalogReader.require(str(backups)).select(again).read_all().num_rows > 0


def test_tasks_of_spark_write_the_same(
    twenty: tuple[Path, list[tuple[str, dict[bytes, bytes]]]],
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backups, made = twenty
    monkeypatch.setattr(restore_snapshot, "_LITTLE", 0)
    monkeypatch.setattr(restore_snapshot, "_SHARE", 200_000)
    told = restore(backups, tmp_path / "out", spark, backup=made[9][0])
    assert contents(tmp_path / "out") == made[9][1]
    assert told["written"] == told["files"] == len(list((tmp_path / "out").iterdir()))
