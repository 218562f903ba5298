"""Flags of `restore topics` that keep a plan and carry it out."""

from __future__ import annotations

import pytest

from lakebackup_jobs.cli import main


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["orders", "--plan", "p.json"], 2, "excludes topics"),
        (["--plan", "p.json", "--to-time", "14:05", "--map", "a=b"], 2, "excludes to-time, map"),
        (["--plan", "p.json", "--settings", "saved"], 2, "excludes settings"),
        (["--plan", "p.json"], 3, "There is no plan p.json"),
        (["orders", "--to", "dir:out", "--save-plan", "p.json"], 2, "Give --dry-run too"),
        (["--plan", "p.json", "--dry-run", "--save-plan", "q.json"], 2, "--save-plan"),
    ],
)
def test_what_does_not_go_together_is_told(
    capsys: pytest.CaptureFixture[str],
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert main(["restore", "topics", *arguments, "--from", "backups"]) == code
    assert message in capsys.readouterr().err
