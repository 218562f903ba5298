"""Drills of topics and change feeds: real data files, restored by Spark, compared record by record."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.command_line import quiet
from tests.support.faults import expire_leases
from tests.support.made_backups import MadeBackups, Record
from tests.support.made_changes import MadeChanges, named, put

from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.restore import job as log_restore
from lakebackup_jobs.targets.folder import FolderTarget
from lakebackup_jobs.upkeep import drill
from lakebackup_jobs.upkeep.drill import DrillRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def made(tmp_path: Path) -> MadeBackups:
    """Two backups of a topic with two partitions; the second one's records are of 1.1 to 1.9 s."""
    made = MadeBackups(tmp_path / "backups")
    for number in (0, 1):
        made.backup(
            [
                [
                    Record(
                        p, 10 * number + n, 1000 * number + 100 * n, b"k%d" % n, b"v%d" % n, (("h", b"x"),)
                    )
                    for n in range(1, 10)
                ]
                for p in (0, 1)
            ]
        )
    made.flush()
    return made


def drilled(made: MadeBackups, spark: SparkSession, **asked: Any) -> dict[str, Any]:
    scratch = made.folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    request = DrillRequest(str(made.folder), scratch=str(scratch), **asked)
    (done,) = drill.run(request, spark=spark, reporter=quiet())["drills"]
    assert not list(scratch.iterdir())
    found: dict[str, Any] = done
    return found


def test_records_are_restored_to_a_moment_and_compared(spark: SparkSession, made: MadeBackups) -> None:
    check = (
        "SELECT key FROM restored WHERE partition = 1 AND kafka_offset > 10 AND "
        "(value <> CONCAT('v', SUBSTRING(key, 2)) OR ts > 1500 OR headers <> '[[\"h\", \"x\"]]') UNION ALL "
        "SELECT 'count' FROM (SELECT COUNT(*) AS n FROM restored) WHERE n <> 28 UNION ALL "
        "SELECT r.key FROM records('orders') AS r LEFT JOIN restored AS s "
        "ON r.partition = s.partition AND r.kafka_offset = s.kafka_offset "
        "WHERE s.key IS NULL AND r.ts <= 1500"
    )
    done = drilled(made, spark, to_ts=1500, check=check)
    assert (done["outcome"], done["detail"]) == ("ok", "28 records restored")
    assert (done["to_ts"], done["files"]) == (1500, 4)
    assert drilled(made, spark, seed=1)["outcome"] == "ok"


def test_a_flipped_bit_in_a_data_file_is_a_difference(spark: SparkSession, made: MadeBackups) -> None:
    path = min(made.folder.rglob("*.data"))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    done = drilled(made, spark)
    assert done["outcome"] == "different"
    assert path.name in done["detail"]
    (row,) = CatalogReader(str(made.folder)).select("SELECT * FROM drills").read_all().to_pylist()
    assert (row["outcome"], row["real_ms"]) == ("different", None)
    assert not list(made.folder.rglob("restores/*/plan/*"))  # no prune spares what it read


def test_records_that_a_restore_lost_or_changed_are_found(
    spark: SparkSession, made: MadeBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore itself says that all is well: its files are replaced when it is done."""
    forget = FolderTarget.forget

    def with_files(change: Any) -> dict[str, Any]:
        def spoiled(target: FolderTarget) -> Sequence[str]:
            notes = forget(target)
            change(sorted((made.folder.parent / "scratch").rglob("partition=1/*.data")))
            return notes

        monkeypatch.setattr(FolderTarget, "forget", spoiled)
        return drilled(made, spark, to_ts=5000)

    lost = with_files(lambda files: files[1].unlink())
    assert (lost["outcome"], lost["detail"]) == ("different", "orders-1: 9 records are there, not 18")
    swapped = with_files(lambda files: files[0].rename(files[1].with_name("z")))
    assert swapped["detail"] == "orders-1: its 18 records are not those that were backed up"
    torn = with_files(lambda files: files[0].write_bytes(files[0].read_bytes()[:-30]))
    assert torn["outcome"] == "different"
    assert ".data" in torn["detail"]


_KILLED = """
import os, signal, sys
from tests.support.command_line import quiet
from lakebackup_jobs.targets.folder import FolderTarget
from lakebackup_jobs.upkeep.drill import DrillRequest, run
FolderTarget.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run(DrillRequest(sys.argv[1], scratch=sys.argv[2], seed=1), reporter=quiet())
"""


@pytest.mark.long
def test_what_a_killed_drill_left_is_deleted_by_the_next_one(spark: SparkSession, made: MadeBackups) -> None:
    """It had written all records, and not said so. A process and its JVM take half a minute."""
    scratch = made.folder.parent / "scratch"
    scratch.mkdir()
    done = subprocess.run([sys.executable, "-c", _KILLED, made.folder, scratch], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = scratch.iterdir()
    assert list(left.rglob("*.data"))
    reader = CatalogReader(str(made.folder))
    assert reader.select("SELECT * FROM drills").read_all().num_rows == 0
    assert list(made.folder.rglob("restores/*/plan/*"))
    expire_leases(made.folder)
    assert drilled(made, spark, seed=1)["outcome"] == "ok"  # and that nothing is left in the scratch folder
    assert not list(made.folder.rglob("restores/*/plan/*"))
    (row,) = CatalogReader(str(made.folder)).select("SELECT outcome FROM drills").read_all().to_pylist()
    assert row == {"outcome": "ok"}


@pytest.mark.long
def test_a_full_of_a_feed_is_compared_row_by_row_and_its_log_by_the_count(
    spark: SparkSession, empty_catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "backups"
    shutil.copytree(empty_catalog, root / "catalog")
    feed = MadeChanges(root, CatalogWriter(spark, str(root)))
    feed.flush([put(21, b"a", 5, b"1"), put(21, b"b", 6, b"2")], 10, names=[named(21, "t", 1)])
    full = feed.full(10)
    log = feed.flush([put(21, b"c", 15, b"3")], 20)

    def tried(backup_id: str) -> tuple[str, str]:
        request = DrillRequest(str(root), scratch=str(tmp_path), backup_id=backup_id)
        (done,) = drill.run(request, spark=spark, reporter=quiet())["drills"]
        assert done["bytes"] > 0
        assert done["files"] > 0
        return done["outcome"], done["detail"]

    assert tried(full) == ("ok", "2 rows restored")
    assert tried(log) == ("ok", "3 rows restored")
    bring = log_restore.bring

    def spoiled(request: Any, work: Any, *given: Any) -> dict[str, int]:
        """The restore is done, and a value changes."""
        done = bring(request, work, *given)
        table = request.target.removeprefix("delta:")
        rows = spark.read.format("delta").load(table).toPandas()
        rows.loc[0, "value"] = b"9"
        if request.on_full:
            write_deltalake(table, pa.Table.from_pandas(rows), mode="overwrite")
        else:
            write_deltalake(table, pa.Table.from_pandas(rows[:1]), mode="overwrite")
        return done

    monkeypatch.setattr(log_restore, "bring", spoiled)
    assert tried(full) == ("different", "1 rows are not in the full, 1 of the full are not there")
    assert tried(log) == ("different", "1 rows are there, not 3")
    assert not list(tmp_path.glob(f"{drill.PREFIX}*"))
