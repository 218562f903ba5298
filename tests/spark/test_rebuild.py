"""Rebuilds of the catalog from the objects of its destination."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import EPOCH, backup_id, manifest, publish, put_sidecar
from tests.support.looks import rows_of
from tests.support.rows import filled

from lakebackup.errors import Refused
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.backups import Gap
from lakebackup.rows.tables import TABLES
from lakebackup.rows.topics import Group
from lakebackup.rows.upkeep import Drill
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import lost_backups
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import audit_entry

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GAP = Gap(
    backup_id=backup_id(2),
    source="prod",
    scope="orders",
    epoch=EPOCH,
    region="0",
    from_position=10,
    to_position=12,
    reason="purged",
    from_ts=1999,
    to_ts=2999,
    bridged=True,
)

GROUP = Group(
    backup_id=backup_id(1),
    source="prod",
    group_id="g",
    protocol="classic",
    state="empty",
    scope="orders",
    epoch=EPOCH,
    region="0",
    position=3,
    ts=1999,
)


ROWS = ["files", "positions", "scopes", "gaps", "groups", "audit"]


@pytest.fixture(scope="module")
def module_root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three complete backups of one source and one of another; the third is out of sync."""
    root = tmp_path_factory.mktemp("rebuild ü")
    storage, writer = open_storage(str(root)), CatalogWriter(spark, str(root))
    writer.migrate()
    first, parts = manifest(1, topics=("orders", "payments"))
    publish(storage, writer, (replace(first, groups=[GROUP]), parts))
    publish(storage, writer, manifest(2, gaps=[GAP]))
    publish(storage, writer, manifest(3))
    publish(storage, writer, manifest(4, base=4, source="other"))
    writer.set_states([backup_id(3)], "out_of_sync", actor="me", reason="cut")
    return root


def test_a_rebuild_restores_every_row(spark: SparkSession, root: Path) -> None:
    writer = CatalogWriter(None, str(root))
    writer.record(filled(Drill, drill_id="d", at=1, seed=7, actor="me"))
    # The entries of commands whose names are also names of their rows.
    writer.append_audit(audit_entry("drill", "prod", {"request": {}, "seed": 7, "seconds": 1.5}))
    writer.append_audit(audit_entry("hold", "prod", {"request": {}}, outcome="Refused: no"))
    rows_before = {table: rows_of(root, table) for table in TABLES}
    for commit_file in sorted((root / "catalog/backups/_delta_log").glob("*.json"))[
        -2:
    ]:  # a backup, and a state
        commit_file.unlink()
    with pytest.raises(Refused, match=rf"is behind: {backup_id(4)} is complete"):
        CatalogWriter(spark, str(root)).prepare()
    shutil.rmtree(root / "catalog")
    progress: list[tuple[int, int]] = []
    result = rebuild(spark, str(root), progress=lambda *amounts: progress.append(amounts))
    assert progress == [(0, 4), (4, 4)]
    assert {table: rows_of(root, table) for table in TABLES} == rows_before
    assert result.states == {"complete": 3, "out_of_sync": 1}
    assert (result.files, result.audit, result.problems) == (10, 4, [])
    with pytest.raises(Refused, match="holds backups already"):
        rebuild(spark, str(root))


def test_markers_decide_states_and_a_wrong_manifest_is_named(spark: SparkSession, root: Path) -> None:
    storage = open_storage(str(root))
    shutil.rmtree(root / "catalog")
    destination = destination_id(storage)
    (root / layout.ROOT_FILE).unlink()  # lost too, but the rows name the destination
    copy_fifth_sidecar(root, destination)
    storage.delete(layout.marker_path("prod", backup_id(2), "complete"))
    sidecar.mark(storage, layout.marker_path("other", backup_id(4), "deleted"))
    part = root / layout.parts_path("prod", backup_id(3), 0)
    part.write_text(part.read_text().replace('"entries":10', '"entries":11', 1))
    torn = root / layout.manifest_path("prod", backup_id(5))
    torn.write_bytes(torn.read_bytes()[:-9])
    result = rebuild(spark, str(root))
    assert result.states == {"complete": 1, "unconfirmed": 1, "deleted": 1}
    wrong_count, torn_manifest = sorted(result.problems)
    assert backup_id(3) in wrong_count
    assert "entries 21, not 20" in wrong_count
    assert backup_id(5) in torn_manifest
    reader = CatalogReader.require(str(root))
    assert destination_id(storage) == destination
    states = {row["number"]: row["state"] for row in reader.rows("list_backups", source=None)}
    assert states == {1: "complete", 2: "unconfirmed", 4: "deleted"}
    rows = reader.select("SELECT DISTINCT backup_id FROM files").read_all().to_pylist()
    assert rows == [{"backup_id": backup_id(1)}]
    assert lost_backups(reader) == []  # the catalog knows that backup 3 does not exist


def test_an_entry_that_is_no_row_is_named(spark: SparkSession, root: Path) -> None:
    CatalogWriter(None, str(root)).append_audit(audit_entry("hold", "prod", {"reason": "forged"}))
    shutil.rmtree(root / "catalog")
    result = rebuild(spark, str(root))
    assert result.problems == ["audit/: entries that are no rows of holds: 1."]
    assert rows_of(root, "holds") == []


def copy_fifth_sidecar(root: Path, destination: str) -> None:
    """Copy the sidecar of a fifth backup, made elsewhere: made here, it would write the root's file."""
    storage = open_storage(str(root.parent / "elsewhere"))
    storage.put(layout.ROOT_FILE, f'{{"format": 1, "destination": "{destination}"}}'.encode())
    put_sidecar(storage, manifest(5))
    folder = layout.backup_folder("prod", backup_id(5))
    shutil.copytree(root.parent / "elsewhere" / folder, root / folder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cause", "left_tables"),
    [
        pytest.param("rebuild", ["files", "positions", "audit"], id="some"),
        pytest.param("rebuild", ROWS, id="all"),
        pytest.param("backups", ROWS, id="backups"),
    ],
)
def test_rows_of_an_interrupted_rebuild_are_not_doubled(
    spark: SparkSession, root: Path, cause: str, left_tables: list[str]
) -> None:
    rows_before = {table: rows_of(root, table) for table in ROWS}
    if cause == "rebuild":
        shutil.rmtree(root / "catalog")
        rebuild(spark, str(root))
    for table in {*ROWS, "backups", "migrations"} - {*left_tables}:
        shutil.rmtree(root / "catalog" / table)
    CatalogWriter(spark, str(root)).migrate()
    assert all(rows_of(root, table) for table in left_tables)
    rebuild(spark, str(root))
    assert {table: rows_of(root, table) for table in rows_before} == rows_before
