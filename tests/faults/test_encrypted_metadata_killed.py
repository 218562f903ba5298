"""The first backup of a repository whose metadata is encrypted is killed before its steps; the next goes on.

Layer: make test for the steps that make the repository; make test-all for every step. It is worth its
seconds: the key is stored before the repository has an id, and a run reads its own unfinished work, whose
names are encrypted too.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog
from tests.support.faults import Killed, Steps, watched

FIRST_STEPS = ("put metadata-key.json", "put lakebackup.json")


def expire_all_leases(*folders: Path) -> None:
    """Make every lease expire, whatever the names of its objects are."""
    for folder in folders:
        for path in (folder / "leases").rglob("*"):
            if path.is_file():
                os.utime(path, (0, 0))


@pytest.mark.parametrize(
    "is_thorough", [False, pytest.param(True, marks=pytest.mark.long)], ids=["first steps", "every step"]
)
def test_a_killed_first_backup_goes_on(
    commands: Commands,
    host: Host,
    keys: KeyPair,
    is_thorough: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository, tree = tmp_path / "backups", tmp_path / "secret-db"
    catalog = use_catalog(tmp_path / "catalog", monkeypatch)
    host.has(keys.recipient, identity_file=keys.file, metadata_key_file=new_key(host))
    tree.mkdir()
    (tree / "secret-file").write_bytes(b"secret-content")
    words = ("backup", "snapshot", tree)

    def run(number: int, kill_at: int | str | None) -> Steps:
        with watched(tmp_path / f"steps-{number}", kill_at=kill_at) as steps, suppress(Killed):
            commands.run(*words)
        return steps

    names = run(0, None).names()
    assert [name for name in names if name in FIRST_STEPS] == list(FIRST_STEPS)
    kills: list[int | str] = list(range(1, len(names) + 1)) if is_thorough else [*FIRST_STEPS]
    for number, kill_at in enumerate(kills, 1):
        shutil.rmtree(repository)
        shutil.rmtree(catalog, ignore_errors=True)
        assert run(number, kill_at).dead, kill_at
        expire_all_leases(repository, catalog)
        commands.output(*words)
        assert commands.rows("list")
        checked = commands.result("verify", "--decode")
        assert not any(checked[name] for name in ("damaged", "changed", "missing")), kill_at
        assert names_in_clear(repository) == []
        assert leaks(repository, [b"secret"]) == []
