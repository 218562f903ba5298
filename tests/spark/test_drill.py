"""Drills of topics: records of real data files, restored by Spark's tasks and compared one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.targets.folder import FolderTarget
from lakebackup_jobs.upkeep import drill
from lakebackup_jobs.upkeep.drill import DrillRequest

if TYPE_CHECKING:
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
        def spoiled(target: FolderTarget) -> None:
            forget(target)
            change(sorted((made.folder.parent / "scratch").rglob("partition=1/*.data")))

        monkeypatch.setattr(FolderTarget, "forget", spoiled)
        return drilled(made, spark, to_ts=5000)

    lost = with_files(lambda files: files[1].unlink())
    assert (lost["outcome"], lost["detail"]) == ("different", "orders-1: 9 records are there, not 18")
    swapped = with_files(lambda files: files[0].rename(files[1].with_name("z")))
    assert swapped["detail"] == "orders-1: its 18 records are not those that were backed up"
    torn = with_files(lambda files: files[0].write_bytes(files[0].read_bytes()[:-30]))
    assert torn["outcome"] == "different"
    assert ".data" in torn["detail"]
