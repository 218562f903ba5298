"""The folder that an engine is restored into: whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebackup.errors import Refused
from lakebackup_jobs.queues.restore.engine_folder import EngineFolder


def test_a_folder_belongs_to_the_restore_that_took_it(tmp_path: Path) -> None:
    folder = EngineFolder(str(tmp_path / "engine"))
    folder.begin("r1")
    folder.begin("r1")
    assert folder.blocker("r1") is None
    assert "belongs to another restore that did not finish (r1)" in (folder.blocker("r2") or "")
    with pytest.raises(Refused, match="r1"):
        folder.begin("r2")


def test_a_mark_whose_writer_was_killed_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".lakebackup-restore.json").write_bytes(b"")
    folder = EngineFolder(str(tmp_path))
    assert folder.blocker("r1") is None
    folder.begin("r1")
    assert folder.is_own("r1")
    assert folder.blocker("r2") is not None
