"""Translations of restores are stored beside the data and added to a rebuilt catalog."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.rows import filled

from lakebackup.rows.topics import Translation
from lakebackup.sql_engine.delta.change import replace_rows
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.store import translations
from lakebackup.store.writer import CatalogWriter

ROWS = np.array([[0, 0, 5, 0], [5, 5, 5, 5]], np.int64)


@pytest.fixture
def writer(tmp_path: Path) -> CatalogWriter:
    catalog_writer = CatalogWriter(None, str(tmp_path))
    catalog_writer.migrate()
    for restore_id in ("r1", "r2"):
        translation = identity(restore_id)
        translations.put_rows(catalog_writer.home, [(translation, ROWS)])
    return catalog_writer


def identity(restore_id: str) -> Translation:
    return filled(
        Translation, restore_id=restore_id, at=1, epoch="e", region="3", cluster="c", target_scope="copy",
        target_epoch="t", target_region="3",
    )  # fmt: skip


def count(writer: CatalogWriter) -> int:
    sizes = open_table(f"{writer.catalog_uri}/translations").get_add_actions(flatten=True)
    return sum(sizes.column("num_records").to_pylist())


def test_a_rebuild_after_one_that_died_has_all_translations(writer: CatalogWriter) -> None:
    assert translations.rebuild(writer, "one") == []
    assert count(writer) == 4
    table = open_table(f"{writer.catalog_uri}/translations")
    assert replace_rows(writer._storage, "translations", table.version(), [])  # as the next rebuild begins
    assert translations.rebuild(writer, "two") == []
    assert count(writer) == 4


@pytest.mark.parametrize("torn", [True, False])
def test_unreadable_objects_are_named_and_the_others_are_rebuilt(writer: CatalogWriter, torn: bool) -> None:
    path = translations.object_path(identity("r1"), ROWS)
    if torn:
        writer.home.put(path, writer.home.get(path)[:-9])
    else:
        path = f"{translations.folder('r1')}e/note.txt"
        writer.home.put(path, b"hello")
    (problem,) = translations.rebuild(writer, "one")
    assert path in problem
    assert count(writer) == 2
