"""Checkpoints of a RocksDB that goes on being written: each is backed up, restored, and opens as it was."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from rocksdict import AccessType, Checkpoint, Options, Rdict
from tests.support.command_line import quiet

from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.backup import SnapshotRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TABLET = "table-t1/tablet-a1.snapshots"


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


@dataclass(frozen=True)
class Backups:
    """A destination, and of each backup its id and what the database held. It began anew after `anew`."""

    place: Path
    anew: int
    made: list[tuple[str, dict[bytes, bytes]]]


@pytest.fixture(
    scope="module", params=[(4, 2), pytest.param((20, 12), marks=pytest.mark.long)], ids=["four", "twenty"]
)
def backups(
    request: pytest.FixtureRequest, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Backups:
    rounds, anew = request.param
    tmp = tmp_path_factory.mktemp("rocksdb")
    shutil.copytree(empty_catalog, tmp / "backups/catalog")
    (tmp / "data" / TABLET).mkdir(parents=True)
    dice, database = random.Random(20), Database(tmp / "db")
    made = []
    for number in range(rounds):
        if number == anew:
            database.begin_anew()
        database.write(dice)
        Checkpoint(database.db).create_checkpoint(str(tmp / "data" / TABLET / f"s{number:02d}"))
        asked = SnapshotRequest(
            destination=str(tmp / "backups"), paths=(str(tmp / "data"),), source="rocks", layout="yugabyte"
        )
        told = backup_snapshot.run(asked, reporter=quiet())
        made.append((str(told["backup_id"]), dict(database.held)))
    database.db.close()
    shutil.rmtree(tmp / "data")
    return Backups(tmp / "backups", anew, made)


def restore(
    backups: Backups, folder: Path, spark: SparkSession | None = None, **asked: Any
) -> dict[str, Any]:
    request = SnapshotRestoreRequest(str(backups.place), str(folder), form="flat", **asked)
    return restore_snapshot.run(request, spark=spark, reporter=quiet())


@pytest.mark.long
def test_each_backup_opens_and_holds_what_the_database_held(backups: Backups, tmp_path: Path) -> None:
    for number, (backup_id, held) in enumerate(backups.made):
        out = tmp_path / f"{number:02d}"
        restore(backups, out, backup=backup_id)
        assert contents(out) == held, backup_id


def test_files_are_stored_once_and_a_name_that_came_again_is_another_file(backups: Backups) -> None:
    stored = """
        SELECT COUNT(*) AS files, COUNT(DISTINCT sha256) AS contents FROM snapshot_files
        WHERE name LIKE '%.sst'
    """
    (tables,) = CatalogReader.require(str(backups.place)).select(stored).read_all().to_pylist()
    assert tables["files"] == tables["contents"] >= len(backups.made)
    again = f"""
        SELECT a.name FROM snapshot_files AS a JOIN snapshot_files AS b ON a.name = b.name
        WHERE a.name LIKE '%.sst' AND a.added_in <= {backups.anew} AND b.added_in > {backups.anew}
        AND a.sha256 <> b.sha256
    """
    assert CatalogReader.require(str(backups.place)).select(again).read_all().num_rows > 0


def test_tasks_of_spark_write_the_same(
    backups: Backups, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_LITTLE", 0)
    monkeypatch.setattr(restore_snapshot, "_SPLIT_BYTES", 20_000)
    backup_id, held = backups.made[backups.anew - 1]
    told = restore(backups, tmp_path / "out", spark, backup=backup_id)
    assert contents(tmp_path / "out") == held
    assert told["written"] == told["files"] == len(list((tmp_path / "out").iterdir()))
