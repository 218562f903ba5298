"""DuckDB spills rows to a folder that no other user can read, and that is deleted with the engine."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from lakebackup.storage.scratch_folder import PrivateFolder


def test_the_folder_is_private_and_deleted_with_its_object() -> None:
    spilled = PrivateFolder("lakebackup-spilled-")
    folder = Path(spilled.folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "rows.tmp").write_bytes(b"rows")
    del spilled
    assert not folder.exists()


def test_without_a_writable_folder_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    assert PrivateFolder("lakebackup-spilled-").folder == ""
