"""A folder that appears only when it is complete, without the files of an interrupted run."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup.errors import Refused
from lakebackup_jobs.lifecycle.atomic_dir import StagedFolder


def test_files_of_an_interrupted_run_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    interrupted = StagedFolder(str(folder))
    interrupted.begin()
    interrupted.storage.put("old/part", b"1")
    staged = StagedFolder(str(folder))
    staged.begin()
    staged.storage.put("new", b"2")
    staged.finish()
    assert [path.name for path in folder.iterdir()] == ["new"]
    with pytest.raises(Refused, match="holds new already"):
        StagedFolder(str(folder))
