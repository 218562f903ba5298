"""Writes a folder so that an incomplete one is never taken for complete.

The contents are written into the subfolder `.partial`, then moved out of it. Before the move, a mark in
`.partial` records that everything is written. If the run is killed after that, the next run with the same
contents only moves the rest.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakebackup.errors import EnvironmentProblem, Refused
from lakebackup.storage import Storage, open_storage
from lakebackup.storage.local import local_folder, sync_folder, writing_to

_PARTIAL = ".partial"
_MARK = ".moving"
#: The folder for objects that are only needed while the folder is written.
WORK = ".work/"


class StagedFolder:
    """A new folder, whose contents are put into `storage` and moved into place by `finish`.

    `key` identifies the contents. If an interrupted run with the same key had written everything, `totals`
    has the totals that it recorded, and only `finish` remains to be done; else it is None. Raises Refused
    when the folder holds anything but the leftovers of an earlier run.
    """

    def __init__(self, folder: str, key: str = "") -> None:
        self.folder, self._key = local_folder(folder), key
        self._partial = self.folder / _PARTIAL
        self.totals = self._read_mark()
        if self.totals is None:
            self.require_empty()
        self.storage: Storage = open_storage(str(self._partial), private=False)

    def require_empty(self) -> None:
        """Raise Refused when the folder holds anything but the leftovers of an earlier run."""
        with suppress(FileNotFoundError):
            names = sorted(entry.name for entry in self.folder.iterdir() if entry.name != _PARTIAL)
            if names:
                raise Refused(f"{self.folder} holds {names[0]} already.", hint="Give a folder that is empty.")

    def begin(self) -> None:
        """Delete the leftovers of an earlier run, and create `.partial`. Raises EnvironmentProblem."""
        with writing_to(self.folder):
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)

    def finish(
        self, mtimes: Mapping[str, float] | None = None, *, totals: Mapping[str, Any] | None = None
    ) -> None:
        """Move everything into place. Raises EnvironmentProblem.

        `mtimes` maps a subfolder to the modification time that its files get, in seconds since 1970. `totals`
        are JSON values to record in the mark, for a later run that has to move the rest. With them the mark
        stays until `release`.
        """
        try:
            for temporary in (".tmp", WORK):
                shutil.rmtree(self._partial / temporary, ignore_errors=True)
            for path, mtime in (mtimes or {}).items():
                for folder, _, files in os.walk(self._partial / path):
                    for name in (*files, "."):
                        os.utime(Path(folder, name), (mtime, mtime))
            if totals is not None and self.totals is None:
                self.storage.put(_MARK, json.dumps({"key": self._key, "totals": totals}).encode())
                shutil.rmtree(self._partial / ".tmp", ignore_errors=True)
            for entry in sorted(self._partial.iterdir()):
                if entry.name != _MARK:
                    entry.rename(self.folder / entry.name)
            if totals is None:
                self._partial.rmdir()
            sync_folder(self.folder)
        except OSError as error:
            raise EnvironmentProblem(
                f"Cannot finish {self.folder}: {error}.",
                hint=f"Remove what {self.folder} holds, and run the same command again.",
            ) from error

    def release(self) -> None:
        """Delete the mark. Call it when the run is recorded in the catalog and needs no resumption any
        more."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def _read_mark(self) -> dict[str, Any] | None:
        try:
            mark = json.loads((self._partial / _MARK).read_bytes())
        except (OSError, ValueError):
            return None
        totals: dict[str, Any] = mark["totals"]
        return totals if mark["key"] == self._key else None
