"""Spark tasks of a snapshot's restore: read the files of a share, check them, and write them below a folder.

A file is written under a temporary name in the restore's own folder, and gets its name once its SHA-256 is
right. The contents of the target folder are not trusted: a restore follows no symbolic link there, and
replaces no file that it did not write itself.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal

from lakebackup.errors import Damaged, EnvironmentProblem, NotFound, Refused
from lakebackup.formats.snapshots.names import OWN
from lakebackup.storage import open_storage
from lakebackup.store.roots import Roots
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.snapshots.ranges import Ranges

#: What a task reports of its share: the files, how many of them existed already, and the damaged ones.
REPORT_COLUMNS = (
    "share BIGINT, entries BIGINT, bytes BIGINT, kept BIGINT, damaged BIGINT, names STRING, error STRING"
)
#: How many damaged files are named at most, of each share and in all.
MAX_NAMES = 20
#: The folder, in the restore's own one, of files that are being written.
UNFINISHED = "unfinished"
_TEMPORARY = f"{OWN}/{UNFINISHED}"
_PERMISSIONS = 0o777  # without setuid and setgid: the catalog is not trusted with them
# With the sticky bit: without it, anybody could delete the files in a folder that everybody may write to.
_FOLDER_PERMISSIONS = 0o1777
_OWNER = 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDERS = 64
_OBJECT = attrgetter("destination", "path")
_CHUNK = 1 << 20
# This many zero bytes become a hole; most file systems have blocks of this size.
_BLOCK = 4 << 10
_ZEROS = bytes(_BLOCK)


@dataclass(frozen=True, slots=True)
class File:
    """A file to write: a row of the restore's plan."""

    target: str
    bytes: int | None
    mtime_ms: int
    mode: int
    links: int
    sha256: str | None
    destination: str
    path: str
    position: int
    codec: str
    stored_bytes: int | None
    key_id: str | None

    @property
    def twin(self) -> tuple[object, ...]:
        """The columns in which all hard links of one file agree."""
        return self.destination, self.path, self.position, self.bytes, self.mtime_ms, self.mode, self.sha256

    def was_one_with(self, file: File) -> bool:
        """Return whether both were hard links of one file. For empty files it returns False: in a pack, an
        empty file has the same position as the next file, so the columns cannot tell."""
        return self.bytes != 0 and self.links > 1 and self.twin == file.twin


@dataclass(frozen=True, slots=True)
class RestoredFolder:
    """A folder to restore: a row of the query restore_snapshot_folders."""

    target: str
    mode: int
    mtime_ms: int

    def apply(self, handle: int) -> None:
        """Set the permissions and the modification time of the open folder."""
        os.fchmod(handle, self.mode & _FOLDER_PERMISSIONS)
        mtime_ns = self.mtime_ms * 1_000_000
        os.utime(handle, ns=(mtime_ns, mtime_ns))


@dataclass(frozen=True, slots=True)
class WriteJob(Task):
    """Writes the files of a task's shares.

    `own`: the URI of the restore's own folder. `roots`: those of the destinations.
    `syncs`: each task makes its files durable before it ends.
    """

    COLUMNS = REPORT_COLUMNS

    folder: str
    own: str
    shares: PlanShares
    roots: Roots
    syncs: bool

    def run(self, number: int) -> Mapping[str, Any]:
        report = TaskProgress(open_storage(self.own), "").counter(str(number))
        totals = {"share": number, "entries": 0, "bytes": 0, "kept": 0, "damaged": 0}
        messages: list[str] = []
        with Folder(self.folder) as folder:
            for (destination, path), group in groupby(self._files(number), _OBJECT):
                files = list(group)
                parts = [(file.position, file.stored_bytes) for file in files]
                keys = self.roots.keys if files[0].key_id else None
                ranges = Ranges(self.roots.open(destination), path, parts, keys)
                previous: File | None = None
                for file in files:
                    try:
                        original = previous if previous and file.was_one_with(previous) else None
                        chunks = partial(
                            ranges.contents, file.position, file.stored_bytes, file.codec, file.bytes
                        )
                        totals["kept"] += not folder.write(file, chunks, original)
                        totals["entries"] += 1
                        totals["bytes"] += file.bytes or 0
                        previous = file
                    except (Damaged, NotFound) as error:
                        totals["damaged"] += 1
                        if len(messages) < MAX_NAMES:
                            messages.append(f"{file.target}: {error.message}")
                    report(1, file.bytes or 0)
            if self.syncs:
                folder.sync()
        return {**totals, "names": json.dumps(messages)}

    def _files(self, number: int) -> Iterator[File]:
        return chain.from_iterable(self.shares.rows(number, File))


class Folder:
    """The folder that a restore writes to.

    It is opened once, and every path is looked up from there, one part after the other. Raises
    EnvironmentProblem when it does not exist, or is not the folder that the restore began with.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: OrderedDict[str, int] = OrderedDict()
        self._current_parent = ""
        try:
            self._open[""] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._temporary = self._walk(_TEMPORARY)
        except OSError as error:
            self.__exit__()
            raise EnvironmentProblem(
                f"{path} is not there, or not the folder that this restore began with: "
                f"{os.strerror(error.errno or 0)}.",
                hint="Give a folder that every machine of the Spark cluster sees under this name.",
            ) from error

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._open.values():
            os.close(handle)
        self._open.clear()

    def write(self, file: File, chunks: Callable[[], Iterator[memoryview]], linked: File | None) -> bool:
        """Write a file, or link it to `linked` if the file system can; returns False if it exists already.

        Raises Damaged (its bytes differ from the catalog, or the catalog has no checksum), NotFound (the
        stored bytes are missing), Refused (another file or a symbolic link is in the way),
        EnvironmentProblem.
        """
        if file.sha256 is None:
            raise Damaged(f"the catalog has no checksum of its bytes in {file.path}: they may be anything's")
        with self._explained(file.target):
            parent_path, _, name = file.target.rpartition("/")
            self._current_parent = parent_path
            folder = self._walk(parent_path, make=True)
            state = self._state_of(folder, name, file)
            if state == "whole":
                return False
            is_torn = state == "torn"
            if linked is None or not self._link(linked, folder, name, file, replaces=is_torn):
                self._new(folder, name, file, chunks(), replaces=is_torn)
        return True

    def create_folders(self, folders: Iterable[RestoredFolder], *, existing: bool) -> None:
        """Create folders that only this account can enter until `finish_folders`.

        `folders` lists each folder before its subfolders. `existing`: only change folders that exist already.

        Raises Refused (a file or a symbolic link is in the way), EnvironmentProblem.
        """
        for folder in folders:
            with self._explained(folder.target):
                handle = self._find(folder.target) if existing else self._create_private(folder.target)
                # An earlier run may have set its final mode already.
                if handle is not None and os.fstat(handle).st_mode & _OWNER != _OWNER:
                    os.fchmod(handle, _OWNER)

    def finish_folders(self, folders: Iterable[RestoredFolder]) -> None:
        """Set the permissions and times of the folders that exist, each after everything in it.

        The order matters: a change in a folder sets its time, and a folder of mode 0500 takes no files.
        `folders` come in the order of `create_folders`. Raises Refused, EnvironmentProblem.
        """
        ancestors: list[RestoredFolder] = []
        for folder in folders:
            while ancestors and not folder.target.startswith(f"{ancestors[-1].target}/"):
                self._finish_folder(ancestors.pop())
            ancestors.append(folder)
        while ancestors:
            self._finish_folder(ancestors.pop())

    def _finish_folder(self, folder: RestoredFolder) -> None:
        with self._explained(folder.target):
            handle = self._find(folder.target)
            if handle is not None:
                folder.apply(handle)

    def _find(self, path: str) -> int | None:
        """Return a handle of the folder `path`; None if there is none."""
        try:
            return self._walk(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _create_private(self, path: str) -> int:
        parent_path, _, name = path.rpartition("/")
        parent = self._walk(parent_path, make=True)
        with suppress(FileExistsError):
            os.mkdir(name, _OWNER, dir_fd=parent)
        return self._walk(path)

    def sync(self) -> None:
        """Make everything that was written durable."""
        with self._explained("."):
            _sync_file_system(self._open[""])

    def _state_of(self, folder: int, name: str, file: File) -> Literal["nothing", "torn", "whole"]:
        """Return what an earlier run wrote of the file: nothing, a damaged file, or all of it.

        A regular file with the right modification time counts as written by this restore, also if a power
        failure left it incomplete. Raises Refused for anything else in its place.
        """
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return "nothing"
        if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns != file.mtime_ms * 1_000_000:
            raise self._in_the_way(file)
        if file.bytes is not None and status.st_size != file.bytes:
            return "torn"
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(handle, "rb") as stream:
            is_intact = hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
        return "whole" if is_intact else "torn"

    def _link(self, original: File, folder: int, name: str, file: File, *, replaces: bool) -> bool:
        parent_path, _, source_name = original.target.rpartition("/")
        source_folder = self._walk(parent_path)
        if replaces:
            os.unlink(name, dir_fd=folder)
        return self._add_link(source_folder, source_name, folder, name, file)

    def _new(
        self, folder: int, name: str, file: File, chunks: Iterator[memoryview], *, replaces: bool
    ) -> None:
        temporary = secrets.token_hex(8)
        handle = os.open(temporary, _NEW, 0o600, dir_fd=self._temporary)
        try:
            try:
                _copy(handle, file, chunks)
                os.fchmod(handle, file.mode & _PERMISSIONS)
                mtime_ns = file.mtime_ms * 1_000_000
                os.utime(handle, ns=(mtime_ns, mtime_ns))
            finally:
                os.close(handle)
            # A rename replaces a file that somebody else created meanwhile, a link does not.
            if not replaces and self._add_link(self._temporary, temporary, folder, name, file):
                os.unlink(temporary, dir_fd=self._temporary)
            else:
                os.rename(temporary, name, src_dir_fd=self._temporary, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._temporary)
            raise

    def _add_link(self, source_folder: int, source_name: str, folder: int, name: str, file: File) -> bool:
        """Link `source_name` under a second name; returns False if the file system makes no (more) links."""
        try:
            os.link(source_name, name, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise self._in_the_way(file) from None
        except OSError:  # file systems report it differently; any other error comes up again on writing
            return False
        return True

    def _in_the_way(self, file: File) -> Refused:
        return Refused(
            f"{self._path}/{file.target} is there, and was not written by this restore.",
            hint="Move it away, or restore into a folder that is empty.",
        )

    def _walk(self, path: str, *, make: bool = False) -> int:
        """Return a handle of the folder `path` below this one, which stays open for the next files."""
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        parent_path, _, name = path.rpartition("/")
        parent = self._walk(parent_path, make=make)
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
        handle = os.open(name, _FOLDER, dir_fd=parent)
        self._open[path] = handle
        if len(self._open) > _OPEN_FOLDERS:
            in_use = ("", _TEMPORARY, self._current_parent, parent_path, path)
            oldest = next(key for key in self._open if key not in in_use)
            os.close(self._open.pop(oldest))
        return handle

    @contextmanager
    def _explained(self, target: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = f"{self._path}/{target}"
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Refused(
                    f"A file or a symbolic link is in the way of {path}.",
                    hint="Restore into a folder that is empty and that nobody else writes to.",
                ) from error
            raise EnvironmentProblem(
                f"Cannot write {path}: {os.strerror(error.errno or 0)}.",
                hint="Make room, or give the right to write there; then run the same command again.",
            ) from error


def _copy(handle: int, file: File, chunks: Iterator[memoryview]) -> None:
    sha256 = hashlib.sha256()
    size = 0
    for chunk in chunks:
        sha256.update(chunk)
        size += len(chunk)
        _write_sparse(handle, chunk)
    os.ftruncate(handle, size)  # needed if the file ends in a hole
    if sha256.hexdigest() != file.sha256:
        raise Damaged(f"its bytes at {file.position} of {file.path} are not as they were written (sha256)")


def _write_sparse(handle: int, chunk: memoryview) -> None:
    """Write a chunk at the file's position, with holes for blocks of zeros, so that a sparse disk image takes
    no more room than before its backup."""
    start = 0
    while start < len(chunk):
        end = start
        while bytes(chunk[end : end + _BLOCK]) == _ZEROS:
            end += _BLOCK
        if end > start:
            os.lseek(handle, end - start, os.SEEK_CUR)
            start = end
        while end < len(chunk) and bytes(chunk[end : end + _BLOCK]) != _ZEROS:
            end += _BLOCK
        data = chunk[start:end]
        start = min(end, len(chunk))
        while data:
            data = data[os.write(handle, data) :]


def _sync_file_system(handle: int) -> None:
    """Flush the file system of an open folder to disk."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):  # only Linux has it
        os.sync()
        return
    if syncfs(handle) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
