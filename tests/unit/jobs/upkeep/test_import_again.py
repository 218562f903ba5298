"""An import that runs again after a rebuild has put its rows into the catalog. Spark is left out."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from tests.support.catalogs import manifest
from tests.support.command_line import quiet
from tests.support.looks import rows_of

from lakebackup.recovery.exchange import RowsFile
from lakebackup.recovery.imports import Import, write_import
from lakebackup.storage import open_storage
from lakebackup.store.roots import destination_id
from lakebackup.store.trust import Approvals, destination_claim
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.upkeep import import_catalog
from lakebackup_jobs.upkeep.import_catalog import ImportRequest


def test_rows_that_a_rebuild_took_from_an_import_are_not_imported_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs of the rebuilt tables know none of the import's transactions.

    The first run ended before its entry in the audit log, which tells a prune whose destinations these are.
    The next run adds the entry, once.
    """
    spared: list[Collection[str]] = []
    monkeypatch.setattr(import_catalog, "append", lambda *_, spare, **__: spared.append(spare))
    rows_file = tmp_path / "backups.jsonl"
    rows_file.write_text("{}\n")
    request = ImportRequest(str(tmp_path / "to"), input_paths={"backups": str(rows_file)})
    import_id = import_catalog._identity(request, import_catalog._files(request))
    writer = CatalogWriter(None, request.destination)
    writer.migrate()
    backup = manifest(1)[0].backup
    chunk = RowsFile("files", f"imports/{import_id}/files-000000-aa.parquet", 1, 1, "0" * 64)
    write_import(writer.home, Import(import_id, 1, "me", "{}", (backup,), (chunk,)))
    writer.append([backup], "rebuild")
    for _ in range(2):
        result = import_catalog.run(request, spark=object(), reporter=quiet())  # type: ignore[arg-type]
        assert result["backups"] == 0
        assert spared == [{backup.backup_id}]
        assert len(rows_of(tmp_path / "to", "backups")) == 1
        assert len(rows_of(tmp_path / "to", "audit")) == 1


def test_an_import_that_resumes_approves_what_trust_root_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_catalog, "append", lambda *_, **__: None)
    rows_file, root = tmp_path / "backups.jsonl", str(tmp_path / "root")
    rows_file.write_text("{}\n")
    name = destination_id(open_storage(root))
    request = ImportRequest(
        str(tmp_path / "to"), input_paths={"backups": str(rows_file)}, trust_roots=(root,)
    )
    import_id = import_catalog._identity(request, import_catalog._files(request))
    writer = CatalogWriter(None, request.destination)
    writer.migrate()
    write_import(writer.home, Import(import_id, 1, "me", "{}", (manifest(1)[0].backup,), ()))
    import_catalog.run(request, spark=object(), reporter=quiet())  # type: ignore[arg-type]
    assert Approvals(writer.catalog_uri).value(destination_claim(name, "")) == {"uri": f"file://{root}"}
