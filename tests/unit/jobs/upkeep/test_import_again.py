"""The same import once more, where a rebuild has put its rows into the catalog; Spark is left out."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from tests.support.catalogs import manifest
from tests.support.command_line import quiet
from tests.support.looks import rows_of

from lakebackup.recovery.exchange import RowsFile
from lakebackup.recovery.imports import Import, write_import
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import import_catalog
from lakebackup_jobs.upkeep.import_catalog import ImportRequest


def test_what_a_rebuilt_catalog_has_of_an_import_is_not_put_in_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log knows none of the import's transactions. The run was cut off before its entry in the audit log,
    which a prune asks whose destinations these are: that is made up for, once."""
    spared: list[Collection[str]] = []
    monkeypatch.setattr(import_catalog, "append", lambda *_, spare, **__: spared.append(spare))
    given = tmp_path / "backups.jsonl"
    given.write_text("{}\n")
    request = ImportRequest(str(tmp_path / "to"), given={"backups": str(given)})
    import_id = import_catalog._identity(request, import_catalog._files(request))
    writer = CatalogWriter(None, request.destination)
    writer.migrate()
    backup = manifest(1)[0].backup
    chunk = RowsFile("files", f"imports/{import_id}/files-000000-aa.parquet", 1, 1, "0" * 64)
    write_import(writer.home, Import(import_id, 1, "me", "{}", (backup,), (chunk,)))
    writer.append([backup], "rebuild")
    for _ in range(2):
        again = import_catalog.run(request, spark=object(), reporter=quiet())  # type: ignore[arg-type]
        assert again["backups"] == 0
        assert spared == [{backup.backup_id}]
        assert len(rows_of(tmp_path / "to", "backups")) == 1
        assert len(rows_of(tmp_path / "to", "audit")) == 1
