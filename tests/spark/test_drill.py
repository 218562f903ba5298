"""Drills of topics and change feeds: Spark restores real data files, and each record is compared."""

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
from tests.support.made_changes import MadeChanges, put_change, table_name_row

from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.restore import job as log_restore
from lakebackup_jobs.targets.folder import FolderTarget
from lakebackup_jobs.upkeep import drill
from lakebackup_jobs.upkeep.drill import DrillRequest
from lakebackup_jobs.upkeep.evidence.observations import Observations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def backups(tmp_path: Path) -> MadeBackups:
    """Two backups of a topic with two partitions; the second one's records are of 1.1 to 1.9 s."""
    made_backups = MadeBackups(tmp_path / "backups")
    for number in (0, 1):
        made_backups.backup(
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
    made_backups.flush()
    return made_backups


def run_drill(backups: MadeBackups, spark: SparkSession, **options: Any) -> dict[str, Any]:
    scratch = backups.folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    request = DrillRequest(str(backups.folder), scratch=str(scratch), **options)
    (row,) = drill.run(request, spark=spark, reporter=quiet())["drills"]
    assert not list(scratch.iterdir())
    result: dict[str, Any] = row
    return result


def test_records_are_restored_to_a_moment_and_compared(spark: SparkSession, backups: MadeBackups) -> None:
    check = (
        "SELECT key FROM restored WHERE partition = 1 AND kafka_offset > 10 AND "
        "(value <> CONCAT('v', SUBSTRING(key, 2)) OR ts > 1500 OR headers <> '[[\"h\", \"x\"]]') UNION ALL "
        "SELECT 'count' FROM (SELECT COUNT(*) AS n FROM restored) WHERE n <> 28 UNION ALL "
        "SELECT r.key FROM records('orders') AS r LEFT JOIN restored AS s "
        "ON r.partition = s.partition AND r.kafka_offset = s.kafka_offset "
        "WHERE s.key IS NULL AND r.ts <= 1500"
    )
    result = run_drill(backups, spark, to_ts=1500, check=check)
    assert (result["outcome"], result["detail"]) == ("ok", "28 records restored")
    assert (result["to_ts"], result["files"]) == (1500, 4)
    assert run_drill(backups, spark, seed=1)["outcome"] == "ok"


def test_a_flipped_bit_in_a_data_file_is_a_difference(spark: SparkSession, backups: MadeBackups) -> None:
    path = min(backups.folder.rglob("*.data"))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    result = run_drill(backups, spark)
    assert result["outcome"] == "different"
    assert path.name in result["detail"]
    (row,) = CatalogReader(str(backups.folder)).select("SELECT * FROM drills").read_all().to_pylist()
    assert (row["outcome"], row["real_ms"]) == ("different", None)
    assert not list(
        backups.folder.rglob("restores/*/plan/*")
    )  # so that no prune spares the files that it read


def test_records_that_a_restore_lost_or_changed_are_found(
    spark: SparkSession, backups: MadeBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore reports success: its files are replaced when it has finished."""
    original_forget = FolderTarget.forget

    def with_files(change: Any) -> dict[str, Any]:
        def change_and_forget(target: FolderTarget) -> Sequence[str]:
            notes = original_forget(target)
            change(sorted((backups.folder.parent / "scratch").rglob("partition=1/*.data")))
            return notes

        monkeypatch.setattr(FolderTarget, "forget", change_and_forget)
        return run_drill(backups, spark, to_ts=5000)

    lost = with_files(lambda files: files[1].unlink())
    assert (lost["outcome"], lost["detail"]) == ("different", "orders-1: 9 records are there, not 18")
    swapped = with_files(lambda files: files[0].rename(files[1].with_name("z")))
    assert swapped["detail"] == "orders-1: its 18 records are not those that were backed up"
    torn = with_files(lambda files: files[0].write_bytes(files[0].read_bytes()[:-30]))
    assert torn["outcome"] == "different"
    assert ".data" in torn["detail"]


_KILLED_DRILL = """
import os, signal, sys
from tests.support.command_line import quiet
from lakebackup_jobs.targets.folder import FolderTarget
from lakebackup_jobs.upkeep.drill import DrillRequest, run
FolderTarget.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run(DrillRequest(sys.argv[1], scratch=sys.argv[2], seed=1), reporter=quiet())
"""


@pytest.mark.long
def test_the_next_drill_deletes_the_files_of_a_killed_one(spark: SparkSession, backups: MadeBackups) -> None:
    """It died when it had written all records, before it finished. A process and its JVM take half a
    minute."""
    scratch = backups.folder.parent / "scratch"
    scratch.mkdir()
    process = subprocess.run([sys.executable, "-c", _KILLED_DRILL, backups.folder, scratch], check=False)
    assert process.returncode == -signal.SIGKILL
    (leftover,) = scratch.iterdir()
    assert list(leftover.rglob("*.data"))
    reader = CatalogReader(str(backups.folder))
    assert reader.select("SELECT * FROM drills").read_all().num_rows == 0
    assert list(backups.folder.rglob("restores/*/plan/*"))
    expire_leases(backups.folder)
    assert (
        run_drill(backups, spark, seed=1)["outcome"] == "ok"
    )  # also checks that the scratch folder is empty
    assert not list(backups.folder.rglob("restores/*/plan/*"))
    (row,) = CatalogReader(str(backups.folder)).select("SELECT outcome FROM drills").read_all().to_pylist()
    assert row == {"outcome": "ok"}


@pytest.mark.long
def test_a_feeds_full_is_compared_by_rows_and_its_log_by_their_count(
    spark: SparkSession, empty_catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "backups"
    shutil.copytree(empty_catalog, root / "catalog")
    feed = MadeChanges(root, CatalogWriter(spark, str(root)))
    feed.flush(
        [put_change(21, b"a", 5, b"1"), put_change(21, b"b", 6, b"2")], 10, names=[table_name_row(21, "t", 1)]
    )
    full = feed.full(10)
    log = feed.flush([put_change(21, b"c", 15, b"3")], 20)

    observations = Observations()

    def drill_outcome(backup_id: str) -> tuple[str, str]:
        request = DrillRequest(str(root), scratch=str(tmp_path), backup_id=backup_id)
        result = drill.run(request, spark=spark, reporter=quiet(), observations=observations)
        (row,) = result["drills"]
        assert row["bytes"] > 0
        assert row["files"] > 0
        return row["outcome"], row["detail"]

    assert drill_outcome(full) == ("ok", "2 rows restored")
    assert drill_outcome(log) == ("ok", "3 rows restored")
    full_item, log_item = observations.items
    assert (full_item.backup_id, log_item.backup_id) == (full, log)
    assert full_item.catalog_digest != log_item.catalog_digest
    assert "log_restore_files" in {query.name for query in log_item.queries}
    assert (log_item.entries, log_item.to_time) == (3, "1970-01-01T00:00:00.000Z")  # a tso of 20
    original_bring = log_restore.write_target

    def bring_and_change(request: Any, work: Any, *arguments: Any) -> dict[str, int]:
        """Changes a value after the restore."""
        result = original_bring(request, work, *arguments)
        table = request.target.removeprefix("delta:")
        rows = spark.read.format("delta").load(table).toPandas()
        rows.loc[0, "value"] = b"9"
        if request.on_full:
            write_deltalake(table, pa.Table.from_pandas(rows), mode="overwrite")
        else:
            write_deltalake(table, pa.Table.from_pandas(rows[:1]), mode="overwrite")
        return result

    monkeypatch.setattr(log_restore, "write_target", bring_and_change)
    assert drill_outcome(full) == ("different", "1 rows are not in the full, 1 of the full are not there")
    assert drill_outcome(log) == ("different", "1 rows are there, not 3")
    assert not list(tmp_path.glob(f"{drill.PREFIX}*"))
