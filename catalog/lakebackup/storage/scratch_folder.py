"""Folders of temporary files with a lock. If a process is killed, the next process deletes its folders."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from weakref import finalize


class FolderLock:
    """An exclusive lock on a folder, from its creation until `release` or the end of the process.

    Raises OSError if another process holds it.
    """

    def __init__(self, folder: str | Path) -> None:
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise

    def release(self) -> None:
        """Release the lock."""
        os.close(self._handle)


def remove_tree(folder: str | Path) -> None:
    """Delete a folder of this account with all its content. Raises OSError.

    It first makes the folders in it writable, since a restore gives them the modes that were backed up.
    """
    for above, names, _ in os.walk(folder):
        for name in names:
            path = Path(above, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)


def sweep(folder: str | Path, prefix: str) -> list[Path]:
    """Delete the folders of dead processes in `folder` whose names begin with `prefix`, and return them.

    A folder without a lock belongs to a dead process. Empty folders stay, because a new folder is empty until
    it is locked.
    """
    deleted = []
    for unlocked in Path(folder).glob(f"{prefix}*"):
        with suppress(OSError):  # the folder is in use, or of another account
            if not any(unlocked.iterdir()):
                continue
            lock = FolderLock(unlocked)
            try:
                remove_tree(unlocked)
            finally:
                lock.release()
            deleted.append(unlocked)
    return deleted


class PrivateFolder:
    """A temporary folder of this process that other users cannot read, with a lock, until the object ends.

    `folder` is its path, or "" where none can be created. The end of the process deletes it too. Those of
    processes that were killed are deleted by the next process.
    """

    def __init__(self, prefix: str) -> None:
        try:
            self.folder = tempfile.mkdtemp(prefix=prefix)
            self.lock = FolderLock(self.folder)
        except OSError:
            self.folder = ""
        else:  # the finalizer also runs at the end of the process
            finalize(self, _remove_folder, os.getpid(), self.folder)
            sweep(tempfile.gettempdir(), prefix)  # folders of processes that were killed


def _remove_folder(process_id: int, folder: str) -> None:
    """Remove a folder, but not in a fork of the process that created it."""
    if os.getpid() == process_id:
        shutil.rmtree(folder, ignore_errors=True)
