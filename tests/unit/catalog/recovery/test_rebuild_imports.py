"""Imports that a rebuild adds to the catalog again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakebackup.errors import NotFound
from lakebackup.recovery import imports
from lakebackup.recovery.imports import Import, write_import
from lakebackup.store.writer import CatalogWriter


def test_an_import_with_a_missing_object_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record proves that the import ended. An import without a record was never complete."""

    def lacks(*_: Any, **__: Any) -> None:
        raise NotFound("There is no object imports/0123456789abcdef/files-000000.parquet.")

    writer = CatalogWriter(None, str(tmp_path))
    writer.home.put("imports/fedcba9876543210/files-000000-aa.parquet", b"")
    write_import(writer.home, Import("0123456789abcdef", 1, "me", "{}", (), ()))
    monkeypatch.setattr(imports, "append", lacks)
    imported, problems = imports.rebuild(None, writer, "run", ())  # type: ignore[arg-type]
    assert imported == []
    assert problems == ["There is no object imports/0123456789abcdef/files-000000.parquet."]
