"""Backups keep empty folders, and the modes and times of all folders. No test here needs Java."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import quiet
from tests.support.looks import select_rows

from lakebackup.errors import Damaged, Refused
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.storage.scratch_folder import remove_tree
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.snapshots.tasks import list as list_task
from lakebackup_jobs.snapshots.tasks.write import Folder, RestoredFolder
from lakebackup_jobs.upkeep.verify import VerifyRequest
from lakebackup_jobs.upkeep.verify import run as verify

HOUR = 3_600_000
START = 1_700_000_000_000
MTIME_NS = 1_600_000_000_123_000_000
MODES = {"": 0o750, "empty": 0o1777, "private": 0o700, "private/sub": 0o711, "read-only": 0o500}


class Source:
    """A folder with files and folders, and the destination that it is backed up to."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.root, self.target = folder / "tree", folder / "backups", folder / "out"
        for name in ("empty", "private/sub", "read-only"):
            (self.tree / name).mkdir(parents=True)
        for name in ("top", "private/sub/deep", "read-only/file"):
            (self.tree / name).write_text(name)
        self.set_modes(MODES)
        self._snapshot_ts = START

    def set_modes(self, modes: dict[str, int]) -> None:
        for name, mode in modes.items():
            (self.tree / name).chmod(mode)
            os.utime(self.tree / name, ns=(MTIME_NS, MTIME_NS))

    def backup(self, **options: Any) -> dict[str, Any]:
        self._snapshot_ts += HOUR
        request = SnapshotRequest(
            destination=str(self.root),
            paths=(str(self.tree),),
            source="db",
            taken_at=self._snapshot_ts,
            **options,
        )
        return backup_snapshot.run(request, reporter=quiet())

    def restore(self, **options: Any) -> dict[str, Any]:
        request = SnapshotRestoreRequest(str(self.root), str(self.target), **options)
        return restore_snapshot.run(request, reporter=quiet())


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setattr(list_task, "_RACY_NS", -60_000_000_000)  # a file counts as settled at once
    old_umask = os.umask(0o022)
    yield Source(tmp_path)
    os.umask(old_umask)
    remove_tree(tmp_path / "tree")


def modes(folder: Path) -> dict[str, int]:
    return {
        "" if path == folder else str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
        if path.is_dir()
    }


@pytest.mark.parametrize(("form", "below"), [("tree", "tree"), ("yugabyte", "table-tree"), ("flat", "")])
def test_folders_come_back_with_modes_and_times_empty_ones_too(source: Source, form: Any, below: str) -> None:
    source.backup()
    result = source.restore(form=form)
    assert (result["files"], result["written"]) == (3, 3)
    assert modes(source.target / below) == MODES
    times = {(source.target / below / name).stat().st_mtime_ns for name in MODES}
    assert times == {MTIME_NS}


def test_a_folder_has_a_row_only_where_it_changed_and_counts_as_no_file(source: Source) -> None:
    first = source.backup()
    assert (first["files"], first["copied"], first["new"]) == (3, 3, 3)
    second = source.backup()
    assert (second["files"], second["objects"], second["unchanged"]) == (3, 0, 3)
    source.set_modes({"private": 0o755})
    (source.tree / "empty").rmdir()
    source.set_modes({"": 0o750})
    third = source.backup()
    assert (third["files"], third["copied"], third["gone"], third["unchanged"]) == (3, 0, 0, 3)
    rows = select_rows(
        source.root, "SELECT name, added_in, gone_in FROM snapshot_folders ORDER BY name, added_in"
    )
    assert rows == [
        {"name": "", "added_in": 1, "gone_in": None},
        {"name": "empty", "added_in": 1, "gone_in": 3},
        {"name": "private", "added_in": 1, "gone_in": 3},
        {"name": "private", "added_in": 3, "gone_in": None},
        {"name": "private/sub", "added_in": 1, "gone_in": None},
        {"name": "read-only", "added_in": 1, "gone_in": None},
    ]
    assert select_rows(source.root, "SELECT COUNT(*) AS n FROM snapshot_files") == [{"n": 3}]
    source.restore(backup=second["backup_id"])
    assert modes(source.target / "tree") == MODES
    assert verify(VerifyRequest(str(source.root)), reporter=quiet())["damaged"] == 0


def test_the_backup_of_an_older_version_is_restored_and_the_next_one_has_folders(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = list_task._entries
    with monkeypatch.context() as older:
        older.setattr(
            list_task,
            "_entries",
            lambda unit: (entry for entry in entries(unit) if stat.S_ISREG(entry[1].st_mode)),
        )
        old = source.backup()
    new = source.backup()
    assert (new["copied"], new["unchanged"]) == (0, 3)
    source.restore(backup=old["backup_id"])
    assert modes(source.target / "tree") == {
        "": 0o755,
        "private": 0o755,
        "private/sub": 0o755,
        "read-only": 0o755,
    }
    remove_tree(source.target)
    source.restore(backup=new["backup_id"])
    assert modes(source.target / "tree") == MODES


def test_a_select_restores_the_modes_of_its_files_folders_and_no_other_folder(source: Source) -> None:
    source.backup()
    source.restore(select="SELECT * FROM snapshot_files WHERE name LIKE 'private/%'")
    expected = {name: MODES[name] for name in ("", "private", "private/sub")}
    assert modes(source.target / "tree") == expected


def test_folders_get_their_modes_when_all_files_are_there(source: Source) -> None:
    """Until then the same command can still write the files that damage left out."""
    backup_id = source.backup(pack_below=0)["backup_id"]
    object_path = source.root / "db/snapshots" / backup_id / "tree/-/read-only/file"
    data = object_path.read_bytes()
    object_path.chmod(0o600)
    object_path.write_bytes(b"x" * len(data))
    with pytest.raises(Damaged):
        source.restore()
    assert modes(source.target / "tree")["read-only"] == 0o700
    object_path.write_bytes(data)
    assert source.restore()["written"] == 1
    assert modes(source.target / "tree") == MODES


def test_folders_whose_modes_an_earlier_run_set_are_restored(tmp_path: Path) -> None:
    (tmp_path / ".lakebackup-restore/unfinished").mkdir(parents=True)
    (tmp_path / "a").mkdir(mode=0o500)
    folders = [
        RestoredFolder("a", 0o500, 0),
        RestoredFolder("a/b", 0o755, 0),
        RestoredFolder("a!", 0o4770, 0),
    ]
    with Folder(str(tmp_path)) as folder:
        folder.create_folders(folders, existing=False)
        assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a!")} == {0o700}
        folder.finish_folders(folders)
    folder_modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a!")}
    assert folder_modes == {"a": 0o500, "a/b": 0o755, "a!": 0o770}


def test_no_folder_is_changed_through_a_link(tmp_path: Path) -> None:
    inside, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    (inside / ".lakebackup-restore/unfinished").mkdir(parents=True)
    elsewhere.mkdir(mode=0o711)
    (inside / "a").symlink_to(elsewhere)
    folders = [RestoredFolder("a", 0o777, 0)]
    with Folder(str(inside)) as folder:
        with pytest.raises(Refused, match="in the way"):
            folder.create_folders(folders, existing=False)
        folder.finish_folders(folders)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o711


def test_a_tree_with_read_only_folders_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "x/a/b").mkdir(parents=True)
    (tmp_path / "x/a/b").chmod(0)
    (tmp_path / "x/a").chmod(0o500)
    (tmp_path / "x/link").symlink_to(tmp_path)
    remove_tree(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
