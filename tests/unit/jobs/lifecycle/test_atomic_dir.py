"""A folder that appears whole: what an earlier run left is no part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup.errors import Refused
from lakebackup_jobs.lifecycle.atomic_dir import Staged


def test_what_an_earlier_run_left_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    cut_off = Staged(str(folder))
    cut_off.begin()
    cut_off.storage.put("old/part", b"1")
    staged = Staged(str(folder))
    staged.begin()
    staged.storage.put("new", b"2")
    staged.finish()
    assert [found.name for found in folder.iterdir()] == ["new"]
    with pytest.raises(Refused, match="holds new already"):
        Staged(str(folder))
