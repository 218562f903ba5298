"""The folder that an engine is restored into: its snapshot, its configuration, its schema history."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from lakebackup.errors import Refused
from lakebackup.formats.snapshots.names import OWN
from lakebackup.storage.local import local_folder, sync_folder, writing_to
from lakebackup.storage.scratch_folder import remove_tree

SNAPSHOT = "snapshot"
_MARK = ".lakebackup-restore.json"


class EngineFolder:
    """A folder on this machine that is empty, or that holds what the same restore has written.

    Raises UsageProblem when `folder` does not name a local folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = local_folder(folder, hint="Give --into FOLDER.")

    def blocker(self, restore_id: str | None = None) -> str | None:
        """Return why a restore may not start here; None when it may, or has started here already."""
        if not self.folder.exists() or (restore_id and self.is_own(restore_id)):
            return None
        if not self.folder.is_dir():
            return f"{self.folder} is no folder"
        if mark := self._mark():
            options = f", requested with {mark['asked']}" if mark.get("asked") else ""
            return (
                f"{self.folder} belongs to another restore that did not finish ({mark['restore']}{options})"
            )
        # A mark that is empty or torn is there when its writer was killed.
        name = next((path.name for path in self.folder.iterdir() if path.name != _MARK), None)
        return None if name is None else f"{self.folder} holds {name!r} already"

    def begin(self, restore_id: str, options: str = "") -> None:
        """Claim the folder for a restore. Raises Refused when another restore has it, EnvironmentProblem.

        `options`: the command's options whose meaning depends on the time of day, for messages to a later
        run.
        """
        with writing_to(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            content = json.dumps({"restore": restore_id, "asked": options})
            try:
                with (self.folder / _MARK).open("x") as mark:
                    mark.write(content)
            except FileExistsError:
                if not self._mark():  # its writer was killed, and so did nothing else
                    (self.folder / _MARK).write_text(content, encoding="utf-8")
                elif not self.is_own(restore_id):
                    raise self.refusal(restore_id) from None

    def refusal(self, restore_id: str) -> Refused:
        """Return the error for a folder that the restore may not start in."""
        resume = ", or run the same command as that restore to resume it" if self._mark() else ""
        return Refused(
            f"{self.blocker(restore_id)}.", hint=f"Give --into a folder that is empty or not there{resume}."
        )

    def is_own(self, restore_id: str) -> bool:
        """Return whether a restore has claimed the folder and not released it."""
        return self._mark().get("restore") == restore_id

    def _mark(self) -> dict[str, str]:
        """Return the mark of the restore that has claimed the folder; empty when none has, or it is torn."""
        try:
            mark = json.loads((self.folder / _MARK).read_bytes())
            return {"restore": str(mark["restore"]), "asked": str(mark.get("asked") or "")}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def snapshot_being(self, restore_id: str) -> Path:
        """Return the path of the snapshot while it is incomplete."""
        return self.folder / f".{SNAPSHOT}-{restore_id}"

    def has_snapshot(self, restore_id: str) -> bool:
        """Return whether the snapshot is complete; a complete one gets its final name."""
        unfinished, finished = self.snapshot_being(restore_id), self.folder / SNAPSHOT
        if finished.exists():
            return True
        # The restore of the snapshot deletes its own state once all files are written.
        own = unfinished / OWN
        if (
            not unfinished.is_dir()
            or (own / "state.json").exists()
            or all(path.name == OWN for path in unfinished.iterdir())
        ):
            return False
        with writing_to(self.folder):
            shutil.rmtree(own, ignore_errors=True)
            unfinished.rename(finished)
            sync_folder(self.folder)
        return True

    def clear(self, restore_id: str, names: Iterable[str]) -> None:
        """Delete what the restore wrote, if it has claimed the folder: the snapshot, then the files `names`,
        and its mark last."""
        if not self.is_own(restore_id):
            return
        with writing_to(self.folder):
            for folder in (self.folder / SNAPSHOT, self.snapshot_being(restore_id)):
                if folder.exists():
                    remove_tree(folder)
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
            (self.folder / _MARK).unlink(missing_ok=True)

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file atomically; it replaces an older one."""
        temporary = self.folder / f".{name}"
        with writing_to(self.folder):
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.rename(self.folder / name)
            sync_folder(self.folder)

    def finish(self) -> None:
        """Release the folder, since the restore is finished."""
        with writing_to(self.folder):
            (self.folder / _MARK).unlink(missing_ok=True)
