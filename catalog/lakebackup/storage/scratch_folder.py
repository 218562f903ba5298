"""Folders of temporary files that outlive a process only if it was killed; the next process deletes them."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path


class FolderLock:
    """The lock of a folder, held from now on until `release` or the end of the process. Raises OSError when
    another one has it."""

    def __init__(self, folder: str | Path) -> None:
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._handle)


def remove_tree(folder: str | Path) -> None:
    """Delete a folder of this account and all that is in it. Raises OSError.

    The folders in it may lack the right to write: a restore gives them the modes that were backed up.
    """
    for above, names, _ in os.walk(folder):
        for name in names:
            path = Path(above, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)


def sweep(folder: str | Path, prefix: str) -> list[Path]:
    """Delete the folders below `folder` whose name begins with `prefix` and that belong to no process.

    Those are locked by nobody, and not empty, as a folder is before it is locked. Returns what was deleted.
    """
    deleted = []
    for unlocked in Path(folder).glob(f"{prefix}*"):
        with suppress(OSError):  # it is in use, or of another user
            if not any(unlocked.iterdir()):
                continue
            lock = FolderLock(unlocked)
            try:
                remove_tree(unlocked)
            finally:
                lock.release()
            deleted.append(unlocked)
    return deleted
