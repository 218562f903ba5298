from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from lakebackup.errors import Damaged, EnvironmentProblem, UsageProblem
from lakebackup.storage import AlreadyExists, local, open_storage
from lakebackup.storage.local import LocalStorage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "new" / "root"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and folders that were synced, in order."""
    names: list[str] = []
    original_fsync = os.fsync

    def fsync(handle: int) -> None:
        names.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        original_fsync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def test_every_new_folder_is_made_durable(root: Path, synced: list[str]) -> None:
    LocalStorage(str(root)).put("a/b/c", b"x")
    above = root.parent.parent
    folders = {str(folder) for folder in (above, root.parent, root, root / "a", root / "a/b")}
    assert folders <= set(synced)
    assert synced[-1] == str(root / "a/b"), "the object's own name comes last"


def test_a_put_costs_one_sync_of_the_file_and_one_of_the_folder(
    root: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(root))
    storage.put("a/b/c", b"x")
    synced.clear()
    LocalStorage(str(root)).put("a/b/d", b"x")
    assert len(synced) == 2
    assert synced[0].startswith(str(root / ".tmp"))
    assert synced[1] == str(root / "a/b")
    # Folders that another process made are synced too, and ones that were recreated.
    monkeypatch.setattr(local, "_DURABLE", {})
    synced.clear()
    LocalStorage(str(root)).put("a/b/e", b"x")
    assert {str(root), str(root / "a"), str(root / "a/b")} <= set(synced)
    (root / "a").rename(root / "old")
    synced.clear()
    storage.put("a/b/f", b"x")
    assert {str(root), str(root / "a"), str(root / "a/b")} <= set(synced)


def test_a_folder_that_another_process_removed_is_recreated(root: Path) -> None:
    storage = LocalStorage(str(root))
    storage.put("a/b", b"x")
    (root / "a/b").unlink()
    (root / "a").rmdir()
    storage.put("a/b", b"y")
    assert storage.get("a/b") == b"y"


def test_symbolic_links_are_listed_and_never_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s")
    storage = LocalStorage(str(root))
    storage.put("kept", b"")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    for path in ("folder/secret", "file"):
        for operation in (storage.get, storage.open, storage.stat):
            with pytest.raises(Damaged, match="symbolic link"):
                operation(path)
        with pytest.raises(UsageProblem, match="symbolic link"):
            storage.put(path, b"overwritten")
    with pytest.raises(UsageProblem, match="symbolic link"):
        list(storage.list("folder/"))
    with pytest.raises(UsageProblem, match="symbolic link"):
        storage.delete("folder/secret")
    assert [entry.path for entry in storage.list()] == ["file", "folder", "kept"]
    assert list(storage.folders()) == []
    storage.delete("file")
    assert not (root / "file").is_symlink()
    (root / "circle").symlink_to(root / "circle")
    with pytest.raises(Damaged, match="symbolic link"):
        storage.get("circle")
    assert (outside / "secret").read_bytes() == b"s"


def test_files_of_other_kinds_are_damaged_and_never_waited_for(root: Path) -> None:
    storage = LocalStorage(str(root))
    storage.put("kept", b"")
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        for path in ("fifo", "socket"):
            for operation in (storage.get, storage.open, storage.stat):
                with pytest.raises(Damaged, match="no regular file"):
                    operation(path)
    assert [entry.path for entry in storage.list()] == ["fifo", "kept", "socket"]
    storage.delete("fifo")
    assert not (root / "fifo").exists()


def test_a_root_that_is_itself_a_link_works(root: Path, tmp_path: Path) -> None:
    root.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(root)
    LocalStorage(str(link)).put("a", b"1")
    assert (root / "a").read_bytes() == b"1"


@pytest.mark.parametrize("path", [".tmp", ".tmp/x"])
def test_the_temporary_folder_is_not_for_objects(root: Path, path: str) -> None:
    with pytest.raises(UsageProblem):
        LocalStorage(str(root)).put(path, b"")


def test_only_old_temporary_files_are_deleted(root: Path) -> None:
    strays = root / ".tmp"
    strays.mkdir(parents=True)
    for name in ("old", "young"):
        (strays / name).write_bytes(b"x")
    os.utime(strays / "old", (0, 0))
    LocalStorage(str(root)).put("a", b"1")
    assert [entry.name for entry in strays.iterdir()] == ["young"]


def test_a_committed_writer_leaves_no_temporary_file(root: Path) -> None:
    storage = LocalStorage(str(root))
    storage.put("a", b"1")
    storage.put("a", b"2")
    with pytest.raises(AlreadyExists):
        storage.put("a", b"3", if_absent=True)
    assert list((root / ".tmp").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_the_environments_fault(root: Path) -> None:
    storage = LocalStorage(str(root))
    storage.put("before", b"1")
    with storage.writer() as writer:
        writer._file.close()
        writer._file = Path("/dev/full").open("wb", buffering=0)  # type: ignore[assignment]  # noqa: SIM115
        with pytest.raises(EnvironmentProblem, match="Free some space"):
            writer.write(b"x")
    assert [entry.path for entry in storage.list()] == ["before"]


def test_a_file_and_a_folder_cannot_have_one_path(root: Path) -> None:
    storage = LocalStorage(str(root))
    storage.put("a", b"1")
    with pytest.raises(EnvironmentProblem, match="a/b"):
        storage.put("a/b", b"2")
    storage.put("c/d", b"1")
    with pytest.raises(EnvironmentProblem, match="c"):
        storage.put("c", b"2")
    with pytest.raises(AlreadyExists):
        storage.put("c", b"2", if_absent=True)
    storage.delete("c")
    assert storage.get("c/d") == b"1"
    with pytest.raises(EnvironmentProblem, match="a"):
        LocalStorage(str(root / "a")).put("x", b"")
    with pytest.raises(EnvironmentProblem, match="255"):
        storage.put("n" * 256, b"")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM, errno.EIO])
def test_a_refusal_of_the_system_is_explained(root: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    storage = LocalStorage(str(root))

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(EnvironmentProblem, match=os.strerror(code)):
        storage.put("a", b"", if_absent=True)
    assert list(storage.list()) == []
    assert list((root / ".tmp").iterdir()) == []


def test_other_schemes_are_refused() -> None:
    with pytest.raises(UsageProblem, match="ftp"):
        open_storage("ftp://host/x")
