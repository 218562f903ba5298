"""The names of an engine's headers: kept in files and read again, and none of them twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakebackup.errors import UsageProblem
from lakebackup.formats.queues.headers import NAMES, WATERMARK, HeaderNames
from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def test_names_are_read_as_they_were_written() -> None:
    names = HeaderNames(tid="n", kind="what", tid_format="int64")
    assert HeaderNames.read({NAMES: names.text.encode()}) == names
    assert HeaderNames.read({}) is None


@pytest.mark.parametrize(
    "names",
    [
        {"tid": "x", "kind": "x"},
        {"transaction": "tid"},
        {"kind": "transaction"},
        {"tid": WATERMARK},
        {"transaction": WATERMARK},
        {"kind": WATERMARK},
    ],
)
def test_each_header_has_a_name_of_its_own(names: dict[str, str]) -> None:
    with pytest.raises(UsageProblem, match="a name of its own"):
        HeaderNames(**names)  # type: ignore[arg-type]


def test_a_backup_with_one_name_for_two_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["backup", "queue", "social", "--topics", "delta.*", "--to", str(tmp_path / "backups")]
    headers = ["--tid-header", "x", "--kind-header", "x"]
    assert main([*asked, *headers, "--bootstrap-server", "localhost:1"]) == 2
    assert "a name of its own" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "backups").exists()
