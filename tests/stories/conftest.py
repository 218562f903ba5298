"""The terminal of the stories."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.command_line import Commands, Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from lakebackup_jobs.demo.broker import Broker


@pytest.fixture
def lakebackup(broker: Broker, cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in an empty folder, after the exports of docs/quickstart.md.

    The repository is the folder `backups` in it.
    """
    for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
        if not name.startswith("LAKEBACKUP_TESTS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    monkeypatch.setenv("LAKEBACKUP_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap)
    monkeypatch.setenv("LAKEBACKUP_GROUPS", "none")  # the broker has the consumer groups of other tests
    monkeypatch.chdir(tmp_path)
    return Terminal(cli)
