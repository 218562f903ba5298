"""Many small files of the catalog's tables brought together."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import manifest, publish
from tests.support.command_line import quiet
from tests.support.disks import flip

from lakebackup.errors import Damaged, Refused
from lakebackup.rows.tables import TABLES
from lakebackup.sql_engine.delta import open_table
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import optimize as catalog_optimize
from lakebackup_jobs.upkeep.optimize import OptimizeRequest, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows_of(root: Path) -> dict[str, list[str]]:
    reader = CatalogReader.require(str(root))
    relations = ("backups", "files", "positions", "scopes")
    return {
        r: sorted(map(str, reader.select(f"SELECT * FROM {r}").read_all().to_pylist())) for r in relations
    }


def test_tidy_keeps_every_row(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> None:
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    storage, writer = open_storage(str(tmp_path)), CatalogWriter(spark, str(tmp_path))
    for number in range(1, 6):
        publish(storage, writer, manifest(number))
    before = rows_of(tmp_path)
    assert len(before["backups"]) == 5
    writer.tidy(most=4)
    files = {table: open_table(f"file://{tmp_path}/catalog/{table}").file_uris() for table in before}
    assert {table: len(found) for table, found in files.items()} == dict.fromkeys(before, 1)
    assert rows_of(tmp_path) == before
    publish(storage, writer, manifest(6))  # and it goes on
    publish(storage, writer, manifest(5))  # what was there is not added again
    assert len(rows_of(tmp_path)["backups"]) == 6

    (whole,) = files["backups"]
    flip(Path(whole))
    with pytest.raises(Damaged):
        rows_of(tmp_path)


@pytest.mark.parametrize(
    "tables",
    [pytest.param(tuple(TABLES), id="all", marks=pytest.mark.long), pytest.param(("files",), id="one")],
)
def test_optimize_brings_files_together_deletes_old_ones_and_stays_verified(
    spark: SparkSession,
    empty_catalog: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tables: tuple[str, ...],
) -> None:
    monkeypatch.setattr(catalog_optimize, "TABLES", tables)
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    storage, writer = open_storage(str(tmp_path)), CatalogWriter(spark, str(tmp_path))
    for number in range(1, 4):
        publish(storage, writer, manifest(number))
    before = rows_of(tmp_path)
    folder = tmp_path / "catalog" / "files"
    old = [path for path in folder.iterdir() if path.suffix == ".parquet"]
    for path in old:  # as if written nine days ago; one by a run that never committed
        os.utime(path, (time.time() - 9 * 86_400,) * 2)
    stray = folder / f"part-{'0' * 32}-{'0' * 64}.parquet"
    stray.write_bytes(b"of nobody")
    os.utime(stray, (time.time() - 9 * 86_400,) * 2)
    silent = quiet()
    with pytest.raises(Refused, match="7 days"):
        run(OptimizeRequest(str(tmp_path), retain_ms=86_400_000), spark=spark, reporter=silent)
    planned = run(OptimizeRequest(str(tmp_path), dry_run=True), reporter=silent)
    assert stray.exists()
    told = run(OptimizeRequest(str(tmp_path)), spark=spark, reporter=silent)
    (files,) = (row for row in told["tables"] if row["table"] == "files")
    assert (files["files"], files["files_after"]) == (3, 1)
    assert planned["files"] == told["files"] > told["files_after"]
    assert not stray.exists()
    assert all(path.exists() for path in old), "taken out just now: readers of the version before still may"
    assert rows_of(tmp_path) == before
    publish(storage, writer, manifest(4))
    assert len(rows_of(tmp_path)["backups"]) == 4

    (whole,) = (Path(path) for path in open_table(f"file://{folder}").file_uris() if "-c000" in path)
    flip(whole)
    with pytest.raises(Damaged):
        rows_of(tmp_path)
