"""Identities of one process: each connection has those of its own settings.

Layer: make test, without Java.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import write_identity

from lakebackup.config import EncryptionOptions
from lakebackup_jobs.runtime import identities


def test_the_next_command_of_a_process_has_the_identity_of_its_own_settings(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_text("text")
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        keys = write_identity(folder)
        (folder / "settings.toml").write_text(
            f'[encryption]\nrecipients = ["{keys.recipient}"]\nidentity_file = "{keys.file}"\n'
        )
        at = ("--repo", folder / "backups", "--config", folder / "settings.toml")
        commands.output("backup", "snapshot", tmp_path / "tree", "--source", "files", *at)
        commands.output("restore", "snapshot", "--to", folder / "restored", *at)
        assert (folder / "restored/tree/file").read_text() == "text"


def test_processes_below_have_the_identity_of_the_newest_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    identities.use(EncryptionOptions(identity_file="one"))
    identities.use(EncryptionOptions(identity_file="two"))
    monkeypatch.setattr(identities, "_options", None)  # a process below has only the variables
    assert identities.in_use().identity_file == "two"
