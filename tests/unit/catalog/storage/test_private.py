"""Files that only this account may read or write.

Only root can give a file to another account, so tests of other owners need root. The rest are tests of modes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakebackup.errors import Refused
from lakebackup.storage.private import require_own, state_folder

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("secret")
    return file


@pytest.mark.parametrize(
    ("mode", "as_settings", "as_secret"),
    [
        (0o600, None, None),
        (0o400, None, None),
        (0o644, None, "may read"),
        (0o604, None, "may read"),
        (0o666, "may write", "may read"),
        (0o602, "may write", "may write"),
    ],
)
def test_files_that_others_may_read_or_write_are_refused(
    file: Path, mode: int, as_settings: str | None, as_secret: str | None
) -> None:
    file.chmod(mode)
    for secret, refusal in ((False, as_settings), (True, as_secret)):
        if refusal is None:
            require_own(file, "The key file", secret=secret)
            continue
        with pytest.raises(Refused, match=refusal) as caught:
            require_own(file, "The key file", secret=secret)
        assert "chmod" in caught.value.hint


@AS_ROOT
def test_a_file_of_another_account_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o600)
    os.chown(file, 65534, 65534)
    monkeypatch.delenv("SUDO_UID", raising=False)
    with pytest.raises(Refused, match="belongs to another account"):
        require_own(file, "The configuration file")
    monkeypatch.setenv("SUDO_UID", "65534")
    require_own(file, "The configuration file")


@AS_ROOT
def test_a_file_that_another_group_may_write_is_refused(file: Path) -> None:
    os.chown(file, 0, 65534)
    file.chmod(0o620)
    with pytest.raises(Refused, match="may write"):
        require_own(file, "The configuration file")


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    require_own(tmp_path / "gone", "The key file", secret=True)


def test_the_state_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert state_folder() == Path("/state/lakebackup")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert state_folder() == Path("/home/ann/.local/state/lakebackup")


def test_an_account_without_a_home_has_no_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 123_456)  # an account without a name, as in containers
    assert state_folder() is None
