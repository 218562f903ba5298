"""Checkpoints of a RocksDB that is written to: each is backed up and restored, and opens unchanged."""

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
from lakebackup_jobs.snapshots.request import SnapshotRequest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TABLET = "table-t1/tablet-a1.snapshots"


class Database:
    """A RocksDB with keys of bytes, and its expected contents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.expected: dict[bytes, bytes] = {}
        self.open()

    def open(self) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_disable_auto_compactions(True)
        self.db = Rdict(str(self.path), options)

    def write(self, dice: random.Random) -> None:
        """Add, change and delete some keys; now and then compact everything into new files."""
        for _ in range(200):
            key = b"key%04d" % dice.randrange(1000)
            if self.expected and dice.random() < 0.2:
                key = dice.choice(sorted(self.expected))
                del self.db[key], self.expected[key]
            else:
                self.expected[key] = self.db[key] = dice.randbytes(dice.randrange(200))
        self.db.flush()
        if dice.random() < 0.2:
            self.db.compact_range(None, None)

    def recreate(self) -> None:
        """Start an empty database, as after a loss: its file numbers repeat, with other contents."""
        self.db.close()
        shutil.rmtree(self.path)
        self.expected = {}
        self.open()


def contents(path: Path) -> dict[bytes, bytes]:
    db = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        return dict(db.items())
    finally:
        db.close()


@dataclass(frozen=True)
class Backups:
    """A destination, and the id and expected contents of each backup. After `restart` backups the database
    was replaced."""

    root: Path
    restart: int
    states: list[tuple[str, dict[bytes, bytes]]]


@pytest.fixture(
    scope="module", params=[(4, 2), pytest.param((20, 12), marks=pytest.mark.long)], ids=["four", "twenty"]
)
def backups(
    request: pytest.FixtureRequest, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Backups:
    rounds, restart = request.param
    tmp = tmp_path_factory.mktemp("rocksdb")
    shutil.copytree(empty_catalog, tmp / "backups/catalog")
    (tmp / "data" / TABLET).mkdir(parents=True)
    dice, database = random.Random(20), Database(tmp / "db")
    states = []
    for number in range(rounds):
        if number == restart:
            database.recreate()
        database.write(dice)
        Checkpoint(database.db).create_checkpoint(str(tmp / "data" / TABLET / f"s{number:02d}"))
        snapshot_request = SnapshotRequest(
            destination=str(tmp / "backups"), paths=(str(tmp / "data"),), source="rocks", layout="yugabyte"
        )
        result = backup_snapshot.run(snapshot_request, reporter=quiet())
        states.append((str(result["backup_id"]), dict(database.expected)))
    database.db.close()
    shutil.rmtree(tmp / "data")
    return Backups(tmp / "backups", restart, states)


def restore(
    backups: Backups, folder: Path, spark: SparkSession | None = None, **options: Any
) -> dict[str, Any]:
    request = SnapshotRestoreRequest(str(backups.root), str(folder), form="flat", **options)
    return restore_snapshot.run(request, spark=spark, reporter=quiet())


@pytest.mark.long
def test_each_backup_opens_with_the_databases_contents(backups: Backups, tmp_path: Path) -> None:
    for number, (backup_id, expected) in enumerate(backups.states):
        folder = tmp_path / f"{number:02d}"
        restore(backups, folder, backup=backup_id)
        assert contents(folder) == expected, backup_id


def test_files_are_stored_once_and_a_reused_name_is_another_file(backups: Backups) -> None:
    count_query = """
        SELECT COUNT(*) AS files, COUNT(DISTINCT sha256) AS contents FROM snapshot_files
        WHERE name LIKE '%.sst'
    """
    (counts,) = CatalogReader.require(str(backups.root)).select(count_query).read_all().to_pylist()
    assert counts["files"] == counts["contents"] >= len(backups.states)
    reuse_query = f"""
        SELECT a.name FROM snapshot_files AS a JOIN snapshot_files AS b ON a.name = b.name
        WHERE a.name LIKE '%.sst' AND a.added_in <= {backups.restart} AND b.added_in > {backups.restart}
        AND a.sha256 <> b.sha256
    """
    assert CatalogReader.require(str(backups.root)).select(reuse_query).read_all().num_rows > 0


def test_spark_tasks_write_the_same_files(
    backups: Backups, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_snapshot, "_SHARE_BYTES", 20_000)
    backup_id, expected = backups.states[backups.restart - 1]
    result = restore(backups, tmp_path / "out", spark, backup=backup_id, runner="spark")
    assert contents(tmp_path / "out") == expected
    assert result["written"] == result["files"] == len(list((tmp_path / "out").iterdir()))
