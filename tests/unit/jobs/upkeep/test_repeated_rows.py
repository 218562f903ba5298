"""Another program compacts the catalog while a run merges it: a user learns of it, and can mend it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.command_line import Commands


def test_verify_tells_of_repeated_rows_and_optimize_removes_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands, folder = Commands(capsys), tmp_path / "folder"
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}").write_text(f"{number}", "utf-8")
        commands.result("backup", "snapshot", folder, "--source", "notes")
    backups = commands.rows("list")
    stranger = DeltaTable(str(tmp_path / "backups" / "catalog" / "backups"))
    assert commands.result("catalog", "optimize")["repeated_rows"] == 0
    stranger.optimize.compact()
    assert commands.rows("list") != backups
    message = commands.fails(7, "verify")
    assert f"table backups, version {stranger.version()} (by delta-rs" in message
    assert "`lakebackup catalog optimize` removes them" in message
    assert commands.result("catalog", "optimize")["repeated_rows"] == 3
    assert commands.rows("list") == backups
    commands.result("verify")
