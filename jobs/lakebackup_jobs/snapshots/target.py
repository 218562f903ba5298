"""The folder that a snapshot's files are restored into, and what a restore keeps there until it is done."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, EnvironmentProblem, Refused
from lakebackup.formats.snapshots.names import OWN, Limits
from lakebackup.plan.snapshots.restore import linked_bytes
from lakebackup.storage import open_storage
from lakebackup.storage.local import local_folder, sync_folder, writing_to
from lakebackup_jobs.snapshots.tasks.write import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakebackup.plan.snapshots.restore import SnapshotRestorePlan
    from lakebackup.storage import Storage
    from lakebackup_jobs.snapshots.tasks.write import RestoredFolder


class Target:
    """The folder that files are restored into: empty, or holding what the same restore left of itself.

    Raises UsageProblem when it is no folder of this machine.
    """

    def __init__(self, folder: str) -> None:
        self.folder = local_folder(folder)
        #: The folder of a tablet whose files go directly into this one; None when there is none.
        self.root: RestoredFolder | None = None
        self._own = self.folder / OWN
        self._state = self._own / "state.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise Refused(
                f"{self.folder} is no folder.", hint="Give one that is empty, or that is not there."
            )

    @property
    def storage(self) -> Storage:
        """The restore's own folder, for what is only needed until it is done."""
        return open_storage(str(self._own))

    @property
    def _existing(self) -> Path:
        """The folder, or the nearest above it that is there."""
        return next(path for path in (self.folder, *self.folder.parents) if path.is_dir())

    def limits(self) -> Limits:
        """What the file system takes."""
        there = self._existing
        return Limits(
            name=os.pathconf(there, "PC_NAME_MAX"),
            path=os.pathconf(there, "PC_PATH_MAX") - len(os.fsencode(self.folder)) - 2,
            fold=_folds(there),
        )

    def taken(self, digest: str) -> str | None:
        """Why the restore with this digest may not write here; None when it may."""
        if not self.folder.exists():
            return None
        own = (self._own, *(self._own.iterdir() if self._own.is_dir() else ()))
        planted = next((path for path in own if path.is_symlink()), None)
        if planted is not None:
            return f"{planted} is a symbolic link, which no restore makes"
        first = next((found.name for found in self.folder.iterdir() if found.name != OWN), None)
        if first is None:
            return None
        state = self._read()
        if state is None:
            return f"{self.folder} holds {first!r} already"
        if state.get("digest") != digest:
            return (
                f"{self.folder} holds a restore of other files that did not finish "
                f"(of {state.get('source')}, {state.get('backup_id') or 'by a SELECT'})"
            )
        return None

    def holds(self, files: Iterable[pa.RecordBatch]) -> bool:
        """Whether the folder has these files and no other, by names, sizes and modification times: what a
        restore of them leaves when it is done. `files`: rows of the query restore_snapshot_order.
        """
        if not self.folder.is_dir():
            return False
        count = 0
        for batch in files:
            wanted = zip(*(batch[name].to_pylist() for name in ("target", "bytes", "mtime_ms")), strict=True)
            if not all(self._is_there(*one) for one in wanted):
                return False
            count += batch.num_rows
        return count == sum(len(names) for _, _, names in os.walk(self.folder))

    def _is_there(self, name: str, size: int, mtime_ms: int) -> bool:
        try:
            found = (self.folder / name).lstat()
        except OSError:
            return False
        same = (found.st_size, found.st_mtime_ns // 1_000_000) == (size, mtime_ms)
        return stat.S_ISREG(found.st_mode) and same

    def require_free(self, made: SnapshotRestorePlan, digest: str) -> None:
        """Refused when the folder is taken, EnvironmentProblem when its disk has not enough room."""
        why = self.taken(digest)
        if why is not None:
            raise Refused(
                f"{why}.",
                hint="Give an empty folder; or ask for the same files as that restore to resume it.",
            )
        there = self._existing
        room = shutil.disk_usage(there).free
        if self._read() is None and room < made.bytes and room < (needed := made.bytes - linked_bytes(made)):
            raise EnvironmentProblem(
                f"{there} has room for {room} bytes, and the files have {needed}.",
                hint="Make room, or name another folder.",
            )

    @contextmanager
    def locked(self, digest: str, made: SnapshotRestorePlan) -> Iterator[bool]:
        """Lock the folder for this process while the block runs; True when it resumes an earlier run.

        Raises Busy, EnvironmentProblem.
        """
        with writing_to(self.folder):
            self._own.mkdir(parents=True, exist_ok=True)
            with (self._own / "lock").open("ab") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise Busy(
                        f"Another restore into {self.folder} is at work.", hint="Wait until it is done."
                    ) from None
                resumed = (self._read() or {}).get("digest") == digest
                for own in ("plan", UNFINISHED, "progress"):
                    shutil.rmtree(self._own / own, ignore_errors=True)
                (self._own / UNFINISHED).mkdir()
                state = {"digest": digest, "source": made.source, "backup_id": made.backup_id}
                self.storage.put(self._state.name, json.dumps(state).encode())
                yield resumed

    def finish(self) -> None:
        """Delete what is only needed until the restore is done."""
        # The state goes first: a folder with files and without a state is never resumed.
        self._state.unlink()
        shutil.rmtree(self._own)
        sync_folder(self.folder)
        if self.root and self.folder.stat().st_uid == os.geteuid():
            handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self.root.apply(handle)
            finally:
                os.close(handle)

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Refused(f"{self._state} cannot be read: {error}.", hint="Give another folder.") from error
        return found if isinstance(found, dict) else {}


def _folds(folder: Path) -> bool:
    """Whether a folder's file system takes names that differ in upper and lower case alone for one."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".lakebackup-a") as probe:
            path = Path(probe.name)
            return path.with_name(path.name.upper()).exists()
    except OSError:  # nothing can be written there: the first write reports it
        return False
