"""Modes of stored files, over a complete backup and its restore, without Java."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import quiet

from lakebackup.errors import UsageProblem
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.storage import open_storage
from lakebackup.storage.options import MODE, StorageOptions
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.request import SnapshotRequest


@pytest.fixture(params=[0o000, 0o077], ids=["open umask", "strict umask"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old_umask = os.umask(request.param)
    yield request.param
    os.umask(old_umask)


def modes(folder: Path) -> tuple[set[int], set[int]]:
    """The permission bits of all files and of all folders, `folder` included."""
    paths = [folder, *folder.rglob("*")]
    files = {path.stat().st_mode & 0o777 for path in paths if path.is_file()}
    return files, {path.stat().st_mode & 0o777 for path in paths if path.is_dir()}


@pytest.mark.parametrize(
    ("mode", "files", "folders"),
    [("private", 0o600, 0o700), ("group", 0o640, 0o750), ("world", 0o644, 0o755)],
)
def test_a_backup_is_as_private_as_configured_and_a_restore_as_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int, mode: str, files: int, folders: int
) -> None:
    if mode != "private":
        monkeypatch.setenv(MODE, mode)
    tree, destination, target_folder = (tmp_path / name for name in ("tree", "backups", "out"))
    (tree / "folder").mkdir(parents=True)
    (tree / "folder/secret").write_bytes(b"s" * 2_000_000)
    (tree / "folder/open").write_bytes(b"o")
    (tree / "folder/secret").chmod(0o600)
    (tree / "folder/open").chmod(0o644)
    request = SnapshotRequest(
        destination=str(destination), paths=(str(tree),), source="db", taken_at=1_700_000_000_000
    )
    backup_snapshot.run(request, reporter=quiet())
    assert modes(destination) == ({files}, {folders})
    restore_snapshot.run(SnapshotRestoreRequest(str(destination), str(target_folder)), reporter=quiet())
    restored = {path.name: path.stat().st_mode & 0o777 for path in target_folder.rglob("*") if path.is_file()}
    assert restored == {"secret": 0o600, "open": 0o644}
    (above,) = {path.parent for path in target_folder.rglob("secret")}
    assert above.stat().st_mode & 0o777 == 0o777 & ~umask


def test_files_for_a_person_have_the_modes_of_the_umask(tmp_path: Path, umask: int) -> None:
    storage = open_storage(str(tmp_path / "out"), private=False)
    storage.put("a/b", b"x")
    assert modes(tmp_path / "out") == ({0o666 & ~umask}, {0o777 & ~umask})


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(MODE, "0777")
    with pytest.raises(UsageProblem, match="private, group, world"):
        open_storage(str(tmp_path))
    assert StorageOptions(mode="group").variables() == {MODE: "group"}
