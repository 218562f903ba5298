"""Flags of `restore topics` that save a plan and carry it out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.made_backups import MadeBackups, Record

from lakebackup_jobs.cli import main


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["orders", "--plan", "p.json"], 2, "excludes topics"),
        (["--plan", "p.json", "--to-time", "14:05", "--map", "a=b"], 2, "excludes to-time, map"),
        (["--plan", "p.json", "--topic-settings", "saved"], 2, "excludes topic-settings"),
        (["--plan", "p.json"], 3, "There is no plan p.json"),
        (["orders", "--to", "dir:out", "--save-plan", "p.json"], 2, "Give --dry-run too"),
        (["--plan", "p.json", "--dry-run", "--save-plan", "q.json"], 2, "--save-plan"),
    ],
)
def test_conflicting_flags_are_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(str(tmp_path))
    assert main(["restore", "topics", *arguments, "--repo", "backups"]) == code
    assert message in capsys.readouterr().err


def test_a_dry_run_ends_as_the_restore_would_and_shows_sql_only_with_explain(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    backups = MadeBackups(tmp_path / "backups")
    backups.backup([[Record(0, n, ts=500 + n) for n in (7, 8)]], low={0: 7})
    backups.flush()
    flags = ["--repo", str(tmp_path / "backups"), "--to", f"dir:{tmp_path}/out"]
    command = ["restore", "topics", "orders", *flags]
    assert main([*command, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "orders" in text
    assert "SELECT" not in text
    assert main([*command, "--dry-run", "--to-time", "1970-01-01T00:00:00.100"]) == 5
    output = capsys.readouterr()
    assert "orders" in output.out
    assert "has nothing as old" in output.err
    assert "nearest restorable time after: 1970-01-01T00:00:00.507" in output.err
    assert main([*command, "--explain"]) == 0
    assert "SELECT" in capsys.readouterr().out
    (tmp_path / "out/topics/orders").mkdir(parents=True)
    (tmp_path / "out/topics/orders/file").touch()
    assert main([*command, "--dry-run"]) == 5
    assert "it holds topics/orders/file" in capsys.readouterr().err
