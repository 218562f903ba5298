"""`lakebackup prune` at the command line, as far as no catalog is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--delete", "--dry-run"], 2, "--delete and --dry-run exclude each other"),
        (["--keep-time", "soon"], 2, "'soon' is not a span of time"),
        (["--keep-size", "huge"], 2, "--keep-size 'huge' is not a size"),
        (["--keep-size", "-1"], 2, "--keep-size '-1' is not a size"),
        (["14", "orders"], 2, "14 days are of whole backups, and orders is a topic"),
        (["14"], 3, "There is no catalog"),
        ([], 3, "There is no catalog"),
        (["--delete"], 3, "There is no catalog"),
    ],
)
def test_what_cannot_be_done_is_told(
    flags: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["prune", "--from", str(tmp_path / "nothing"), *flags]) == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
