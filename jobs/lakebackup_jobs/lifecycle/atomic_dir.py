"""A folder that appears whole or not at all: written as `.partial` inside itself, then moved into place."""

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
#: What is only needed while the folder is written.
WORK = ".work/"


class Staged:
    """A new folder on its way. `storage` is where its contents are put until `finish`.

    Raises Refused when it holds anything but what an earlier run left of itself.
    """

    def __init__(self, folder: str) -> None:
        self.folder = local_folder(folder)
        self._partial = self.folder / _PARTIAL
        self.require_empty()
        self.storage: Storage = open_storage(str(self._partial), private=False)

    def require_empty(self) -> None:
        """Raises Refused when the folder holds anything."""
        with suppress(FileNotFoundError):
            taken = sorted(found.name for found in self.folder.iterdir() if found.name != _PARTIAL)
            if taken:
                raise Refused(f"{self.folder} holds {taken[0]} already.", hint="Give a folder that is empty.")

    def begin(self) -> None:
        """Delete what an earlier run left, and start. Raises EnvironmentProblem."""
        with writing_to(self.folder):
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)

    def finish(self, changed: Mapping[str, float] | None = None) -> None:
        """Move everything into place.

        `changed`: when the files of a folder were last changed, in seconds since 1970.
        """
        try:
            for own in (".tmp", WORK):
                shutil.rmtree(self._partial / own, ignore_errors=True)
            for path, at in (changed or {}).items():
                for above, _, files in os.walk(self._partial / path):
                    for name in (*files, "."):
                        os.utime(Path(above, name), (at, at))
            for found in sorted(self._partial.iterdir()):
                found.rename(self.folder / found.name)
            self._partial.rmdir()
            sync_folder(self.folder)
        except OSError as error:
            raise EnvironmentProblem(
                f"Cannot finish {self.folder}: {error}.",
                hint=f"Remove what {self.folder} holds, and run the same command again.",
            ) from error
