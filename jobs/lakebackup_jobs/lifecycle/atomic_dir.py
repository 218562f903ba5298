"""A folder that appears completely or not at all: it is written below `.partial` in it, then moved into
place."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.storage import Storage, open_storage
from lakebackup.storage.local import local_folder, sync_folder, writing_to

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTIAL = ".partial"
#: The folder for objects that are only needed while the folder is written.
WORK = ".work/"


class Staged:
    """A new folder in preparation. Its contents are put into `storage` until `finish`.

    Raises Refused when the folder holds anything but the leftovers of an earlier run.
    """

    def __init__(self, folder: str) -> None:
        self.folder = local_folder(folder)
        self._partial = self.folder / _PARTIAL
        self.require_empty()
        self.storage: Storage = open_storage(str(self._partial), private=False)

    def require_empty(self) -> None:
        """Raise Refused when the folder holds anything but the leftovers of an earlier run."""
        with suppress(FileNotFoundError):
            names = sorted(entry.name for entry in self.folder.iterdir() if entry.name != _PARTIAL)
            if names:
                raise Refused(f"{self.folder} holds {names[0]} already.", hint="Give a folder that is empty.")

    def begin(self) -> None:
        """Delete the leftovers of an earlier run, and start. Raises EnvironmentProblem."""
        with writing_to(self.folder):
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)

    def finish(self, changed: Mapping[str, float] | None = None) -> None:
        """Move everything into place. Raises EnvironmentProblem.

        `changed` maps a subfolder to the modification time that its files get, in seconds since 1970.
        """
        try:
            for own in (".tmp", WORK):
                shutil.rmtree(self._partial / own, ignore_errors=True)
            for path, mtime in (changed or {}).items():
                for folder, _, files in os.walk(self._partial / path):
                    for name in (*files, "."):
                        os.utime(Path(folder, name), (mtime, mtime))
            for entry in sorted(self._partial.iterdir()):
                entry.rename(self.folder / entry.name)
            self._partial.rmdir()
            sync_folder(self.folder)
        except OSError as error:
            raise EnvironmentProblem(
                f"Cannot finish {self.folder}: {error}.",
                hint=f"Remove what {self.folder} holds, and run the same command again.",
            ) from error
