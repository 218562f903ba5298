"""Many small files of the catalog's tables brought together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import manifest, publish

from lakebackup.engine.delta import open_table
from lakebackup.errors import Damaged
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows_of(root: Path) -> dict[str, list[str]]:
    reader = CatalogReader.open(str(root))
    assert reader is not None
    relations = ("backups", "files", "positions", "scopes")
    return {
        r: sorted(map(str, reader.select(f"SELECT * FROM {r}").read_all().to_pylist())) for r in relations
    }


def test_tidy_keeps_every_row(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> None:
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    storage, writer = open_storage(str(tmp_path)), CatalogWriter.open(spark, str(tmp_path))
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
    content = bytearray(Path(whole).read_bytes())
    content[len(content) // 2] ^= 1
    Path(whole).write_bytes(content)
    with pytest.raises(Damaged):
        rows_of(tmp_path)
