"""The folder that an engine is restored into: its snapshot, its configuration, its schema history."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

from lakebackup.errors import Refused
from lakebackup.formats.snapshots.names import OWN
from lakebackup.storage.local import local_folder, sync_folder, writing_to
from lakebackup.storage.scratch_folder import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SNAPSHOT = "snapshot"
_MARK = ".lakebackup-restore.json"


class EngineFolder:
    """A folder of this machine that is empty, or holds what the same restore has put there.

    Raises UsageProblem when it is none.
    """

    def __init__(self, folder: str) -> None:
        self.folder = local_folder(folder, hint="Give --into FOLDER.")

    def taken(self, restore_id: str | None = None) -> str | None:
        """Why a restore may not start here; None when it may, or has started."""
        if not self.folder.exists() or (restore_id and self.is_own(restore_id)):
            return None
        if not self.folder.is_dir():
            return f"{self.folder} is no folder"
        if mark := self._mark():
            asked = f", requested with {mark['asked']}" if mark.get("asked") else ""
            return f"{self.folder} belongs to another restore that did not finish ({mark['restore']}{asked})"
        # A mark that says nothing is there when its writer was killed.
        first = next((path.name for path in self.folder.iterdir() if path.name != _MARK), None)
        return None if first is None else f"{self.folder} holds {first!r} already"

    def begin(self, restore_id: str, asked: str = "") -> None:
        """Take the folder for a restore; `asked`: options of its command that may mean another
        instant later. Raises Refused when it is another's, EnvironmentProblem."""
        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            content = json.dumps({"restore": restore_id, "asked": asked})
            try:
                with (self.folder / _MARK).open("x") as mark:
                    mark.write(content)
            except FileExistsError:
                if not self._mark():  # its writer was killed, and so did nothing else
                    (self.folder / _MARK).write_text(content, encoding="utf-8")
                elif not self.is_own(restore_id):
                    raise self.refusal(restore_id) from None

    def refusal(self, restore_id: str) -> Refused:
        """The error for a folder that is taken."""
        on = ", or run the same command as that restore to resume it" if self._mark() else ""
        return Refused(
            f"{self.taken(restore_id)}.", hint=f"Give --into a folder that is empty or not there{on}."
        )

    def is_own(self, restore_id: str) -> bool:
        """Whether a restore has taken the folder and not released it."""
        return self._mark().get("restore") == restore_id

    def _mark(self) -> dict[str, str]:
        """What the restore that has the folder has put there; empty when none has, or the mark is torn."""
        try:
            found = json.loads((self.folder / _MARK).read_bytes())
            return {"restore": str(found["restore"]), "asked": str(found.get("asked") or "")}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def snapshot_being(self, restore_id: str) -> Path:
        """Where the snapshot is until it is whole."""
        return self.folder / f".{SNAPSHOT}-{restore_id}"

    def has_snapshot(self, restore_id: str) -> bool:
        """Whether the snapshot is whole; one that is gets its name."""
        being, done = self.snapshot_being(restore_id), self.folder / SNAPSHOT
        if done.exists():
            return True
        # The snapshot's restore starts to delete its own state when all files are there.
        own = being / OWN
        if (
            not being.is_dir()
            or (own / "state.json").exists()
            or all(path.name == OWN for path in being.iterdir())
        ):
            return False
        with writing_to(self.folder):
            shutil.rmtree(own, ignore_errors=True)
            being.rename(done)
            sync_folder(self.folder)
        return True

    def clear(self, restore_id: str, names: Iterable[str]) -> None:
        """Delete what a restore that has the folder put there: the snapshot, and the files `names`. Its
        mark goes last."""
        if not self.is_own(restore_id):
            return
        with writing_to(self.folder):
            for folder in (self.folder / SNAPSHOT, self.snapshot_being(restore_id)):
                if folder.exists():
                    remove_tree(folder)
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
            (self.folder / _MARK).unlink(missing_ok=True)

    def put(self, name: str, content: bytes) -> None:
        """Write a file in place of an older one, whole or not at all."""
        being = self.folder / f".{name}"
        with writing_to(self.folder):
            with being.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            being.rename(self.folder / name)
            sync_folder(self.folder)

    def finish(self) -> None:
        """Release the folder: the restore is finished."""
        with writing_to(self.folder):
            (self.folder / _MARK).unlink(missing_ok=True)
