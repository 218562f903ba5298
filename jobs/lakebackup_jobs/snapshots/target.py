"""The target folder of a snapshot's restore, and the restore's own folder inside it, which is deleted at the
end.

The own folder holds the state (which restore is at work here), the lock, the splits and the unfinished files.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakebackup.errors import Busy, EnvironmentProblem, Refused
from lakebackup.formats.snapshots.names import OWN, Limits
from lakebackup.plan.snapshots.restore import SnapshotRestorePlan, linked_bytes
from lakebackup.storage import Storage, open_storage
from lakebackup.storage.local import local_folder, sync_folder, writing_to
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.snapshots.tasks.write import UNFINISHED, RestoredFolder


class Target:
    """The folder that files are restored into: empty, or with the unfinished files of the same restore.

    Raises UsageProblem when it is no local folder, Refused when it is a file.
    """

    def __init__(self, folder: str) -> None:
        self.folder = local_folder(folder)
        #: The mode and time of this folder itself, if a tablet's files go directly into it.
        self.root: RestoredFolder | None = None
        self._own_folder = self.folder / OWN
        self._state_path = self._own_folder / "state.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise Refused(
                f"{self.folder} is no folder.", hint="Give one that is empty, or that is not there."
            )

    @property
    def storage(self) -> Storage:
        """The restore's own folder, for everything that is only needed until the restore is done."""
        return open_storage(str(self._own_folder))

    @property
    def _existing(self) -> Path:
        """The target, or the nearest folder above it that exists."""
        return next(path for path in (self.folder, *self.folder.parents) if path.is_dir())

    def limits(self) -> Limits:
        """Return which names and paths the file system of the target takes."""
        folder = self._existing
        return Limits(
            name=os.pathconf(folder, "PC_NAME_MAX"),
            path=os.pathconf(folder, "PC_PATH_MAX") - len(os.fsencode(self.folder)) - 2,
            fold=_folds(folder),
        )

    def refusal(self, digest: str) -> str | None:
        """Return why the restore with this digest may not write here; None if it may."""
        if not self.folder.exists():
            return None
        own_paths = (self._own_folder, *(self._own_folder.iterdir() if self._own_folder.is_dir() else ()))
        link = next((path for path in own_paths if path.is_symlink()), None)
        if link is not None:
            return f"{link} is a symbolic link, which no restore makes"
        first = next((entry.name for entry in self.folder.iterdir() if entry.name != OWN), None)
        if first is None:
            return None
        state = self._read_state()
        if state is None:
            return f"{self.folder} holds {first!r} already"
        if state.get("digest") != digest:
            return (
                f"{self.folder} holds a restore of other files that did not finish "
                f"(of {state.get('source')}, {state.get('backup_id') or 'by a SELECT'})"
            )
        return None

    def holds(self, files: Iterable[pa.RecordBatch]) -> bool:
        """Return whether the folder has exactly these files, by names, sizes and modification times.

        That is so after a complete restore. `files`: the rows of its plan.
        """
        if not self.folder.is_dir():
            return False
        count = 0
        for batch in files:
            expected = zip(
                *(batch[name].to_pylist() for name in ("target", "bytes", "mtime_ms")), strict=True
            )
            if not all(self._matches(*attributes) for attributes in expected):
                return False
            count += batch.num_rows
        return count == sum(len(names) for _, _, names in os.walk(self.folder))

    def _matches(self, name: str, size: int, mtime_ms: int) -> bool:
        try:
            status = (self.folder / name).lstat()
        except OSError:
            return False
        is_same = (status.st_size, status.st_mtime_ns // 1_000_000) == (size, mtime_ms)
        return stat.S_ISREG(status.st_mode) and is_same

    def require_free(self, plan: SnapshotRestorePlan, reader: CatalogReader, digest: str) -> None:
        """Raises Refused when the restore may not write here, EnvironmentProblem when the disk has not enough
        room."""
        refusal = self.refusal(digest)
        if refusal is not None:
            raise Refused(
                f"{refusal}.",
                hint="Give an empty folder; or ask for the same files as that restore to resume it.",
            )
        folder = self._existing
        room = shutil.disk_usage(folder).free
        if (
            self._read_state() is None
            and room < plan.bytes
            and room < (needed := plan.bytes - linked_bytes(plan, reader))
        ):
            raise EnvironmentProblem(
                f"{folder} has room for {room} bytes, and the files have {needed}.",
                hint="Make room, or name another folder.",
            )

    @contextmanager
    def locked(self, digest: str, plan: SnapshotRestorePlan) -> Iterator[bool]:
        """Lock the folder for this process while the block runs; yields True if it resumes an earlier run.

        Raises Busy, EnvironmentProblem.
        """
        with writing_to(self.folder):
            self._own_folder.mkdir(parents=True, exist_ok=True)
            with (self._own_folder / "lock").open("ab") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise Busy(
                        f"Another restore into {self.folder} is at work.", hint="Wait until it is done."
                    ) from None
                resumed = (self._read_state() or {}).get("digest") == digest
                for name in ("plan", UNFINISHED, "progress"):
                    shutil.rmtree(self._own_folder / name, ignore_errors=True)
                (self._own_folder / UNFINISHED).mkdir()
                state = {"digest": digest, "source": plan.source, "backup_id": plan.backup_id}
                self.storage.put(self._state_path.name, json.dumps(state).encode())
                yield resumed

    def finish(self) -> None:
        """Delete the restore's own folder, and set the mode and time of the target."""
        # The state is deleted first: a folder with files and without a state is never resumed.
        self._state_path.unlink()
        shutil.rmtree(self._own_folder)
        sync_folder(self.folder)
        if self.root and self.folder.stat().st_uid == os.geteuid():
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self.root.apply(handle)
            finally:
                os.close(handle)

    def _read_state(self) -> dict[str, Any] | None:
        try:
            state = json.loads(self._state_path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Refused(
                f"{self._state_path} cannot be read: {error}.", hint="Give another folder."
            ) from error
        return state if isinstance(state, dict) else {}


def _folds(folder: Path) -> bool:
    """Return whether a folder's file system ignores upper and lower case in names."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".lakebackup-a") as probe:
            path = Path(probe.name)
            return path.with_name(path.name.upper()).exists()
    except OSError:  # the folder cannot be written: the first file to restore will report that
        return False
