"""Upkeep of a change feed's backups: rebuild, and what verify finds in their files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import quiet
from tests.support.looks import rows_of, select_rows
from tests.support.made_changes import MadeChanges, commit, prewrite, put_change, table_name_row

from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.backups import Gap
from lakebackup.rows.logs import LogTask
from lakebackup.rows.tables import TABLES
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.upkeep import compact, truncate
from lakebackup_jobs.upkeep import verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def module_root(spark: SparkSession, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three flushes, a full and a compaction of a paused task."""
    root = tmp_path_factory.mktemp("kept ü")
    shutil.copytree(empty_catalog, root / "catalog")
    writer = CatalogWriter(spark, str(root))
    changes = MadeChanges(root, writer)
    changes.flush(
        [put_change(21, b"a", 5, b"1"), prewrite(21, b"b", 4, b"long")],
        10,
        names=[table_name_row(21, "t", 1)],
    )
    changes.flush(
        [put_change(21, b"c", 15, b"2"), prewrite(22, b"d", 16, b"x")],
        20,
        names=[table_name_row(22, "u", 11)],
    )
    changes.full(20)
    changes.flush([commit(21, b"b", 4, 25), commit(22, b"d", 16, 26)], 30, regions={1: 30, 2: 35})
    writer.record(LogTask(source="shop", at=9, actor="me", state="paused", settings="{}", detail="full"))
    request = compact.CompactLogRequest(str(root), "shop", until=20)
    compact.run(request, spark=spark, reporter=quiet())
    return root


def findings(root: Path, spark: SparkSession, **changes: Any) -> dict[str, tuple[str, str]]:
    """The findings of verify that are not ok: path -> outcome and detail."""
    request = verify.VerifyRequest(destination=str(root), grace_ms=-3_600_000, **changes)
    verify.run(request, spark=spark, reporter=quiet())
    rows = select_rows(root, "SELECT path, outcome, detail FROM checks WHERE outcome <> 'ok'")
    return {row["path"]: (row["outcome"], row["detail"] or "") for row in rows}


def test_a_rebuild_restores_every_row(spark: SparkSession, root: Path) -> None:
    request = truncate.TruncateRequest(str(root), "shop", until=20, delete=True)
    assert truncate.run(request, spark=spark, reporter=quiet())["cut"] == 20
    rows_before = {table: rows_of(root, table) for table in TABLES}
    filled_tables = ("log_tasks", "log_regions", "log_tables", "departures", "floors", "removals")
    assert all(rows_before[table] for table in filled_tables)
    coverage = select_rows(root, "SELECT * FROM coverage")
    regions = select_rows(root, "SELECT * FROM log_regions ORDER BY region")
    CatalogWriter(spark, str(root)).fold("log_regions")
    assert select_rows(root, "SELECT * FROM log_regions ORDER BY region") == regions
    rows_before |= {"log_regions": rows_of(root, "log_regions")}
    assert len(rows_before["log_regions"]) == len(regions) == 2
    shutil.rmtree(root / "catalog")
    assert rebuild(spark, str(root)).problems == []
    assert {table: rows_of(root, table) for table in TABLES} == rows_before
    assert select_rows(root, "SELECT * FROM coverage") == coverage


def test_verify_finds_changed_missing_and_orphaned_files(spark: SparkSession, root: Path) -> None:
    rows = select_rows(root, "SELECT path FROM files WHERE format IN ('log-arrow-1', 'delta')")
    (write,) = [row["path"] for row in rows if f"{backup_id(4)}/15/" in row["path"]]  # of table 21, at 25
    (full, *_) = [row["path"] for row in rows if row["path"].endswith(".parquet")]
    flipped = bytearray((root / write).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (root / write).write_bytes(bytes(flipped))
    (root / full).unlink()
    (root / "shop/log" / backup_id(4) / "stranger.log").write_bytes(b"x")
    outcomes = findings(root, spark, mode="decode")
    assert {path: outcome for path, (outcome, _) in outcomes.items()} == {
        write: "changed",
        full: "missing",
        f"shop/log/{backup_id(4)}/stranger.log": "orphan",
    }
    unusable = select_rows(root, "SELECT backup_id, reason FROM unusable_backups ORDER BY backup_id")
    assert [tuple(row.values()) for row in unusable] == [(backup_id(3), "missing"), (backup_id(4), "changed")]
    spans = select_rows(root, "SELECT status, reason, from_ts, to_ts FROM coverage ORDER BY to_ts")
    assert next(tuple(row.values()) for row in spans) == ("restorable", None, 0, 24)
    assert {row["reason"] for row in spans} == {None, "changed"}


def test_verify_restores_a_log_on_trial(spark: SparkSession, root: Path) -> None:
    """A gap in the captured changes is no damage of the captured ones."""
    row = Gap(
        backup_id=backup_id(4), source="shop", scope="feed", epoch="e", region="0", from_position=3,
        to_position=9, reason="purged", from_ts=20, to_ts=30, bridged=True,
    )  # fmt: skip
    CatalogWriter(None, str(root)).append([row])
    assert findings(root, spark, mode="restore") == {}
    (trial,) = select_rows(root, "SELECT detail FROM checks WHERE mode = 'restore'")
    assert trial["detail"] == "4 rows restored, over gaps: 1"
