"""What a Spark task of a restore does: read its split of the files, check them, write them below a folder.

A file is written under another name in the restore's own folder, and gets its name once its SHA-256 is right.
What is below the folder is not trusted: no symbolic link is followed, nothing else's file is replaced.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Damaged, EnvironmentProblem, NotFound, Refused
from lakebackup.formats.snapshots.names import OWN
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.snapshots.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lakebackup.store.roots import Roots

#: What a task reports of each split: its files, those of them that were there already, and what is damaged.
WRITTEN = (
    "share BIGINT, entries BIGINT, bytes BIGINT, kept BIGINT, damaged BIGINT, names STRING, error STRING"
)
#: How many damaged files are named, of a split and in all.
NAMED = 20
#: The folder of files that are being written, in the restore's own.
UNFINISHED = "unfinished"
_TEMPORARY = f"{OWN}/{UNFINISHED}"
_PERMISSIONS = 0o777  # the catalog is not trusted to set a user id
# The sticky bit too: without it, others could delete what is in a folder that all may write to.
_FOLDER_PERMISSIONS = 0o1777
_OWNER = 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDERS = 64
_OBJECT = attrgetter("destination", "path")
_CHUNK = 1 << 20
# So many zero bytes become a hole: a block of most file systems.
_BLOCK = 4 << 10
_ZEROS = bytes(_BLOCK)


@dataclass(frozen=True, slots=True)
class File:
    """A file to write: a row of the query restore_snapshot_order."""

    target: str
    bytes: int | None
    mtime_ms: int
    mode: int
    links: int
    sha256: str | None
    destination: str
    path: str
    position: int

    @property
    def twin(self) -> tuple[object, ...]:
        """What files that were hard links of each other have in common."""
        return self.destination, self.path, self.position, self.bytes, self.mtime_ms, self.mode, self.sha256

    def was_one_with(self, other: File) -> bool:
        """Whether both were hard links of one file. Of empty files that is not known: in a pack each has the
        place of the next."""
        return self.bytes != 0 and self.links > 1 and self.twin == other.twin


@dataclass(frozen=True, slots=True)
class RestoredFolder:
    """A folder to restore: a row of the query restore_snapshot_folders."""

    target: str
    mode: int
    mtime_ms: int

    def apply(self, handle: int) -> None:
        """Give the open folder its permissions and its time of last change."""
        os.fchmod(handle, self.mode & _FOLDER_PERMISSIONS)
        at = self.mtime_ms * 1_000_000
        os.utime(handle, ns=(at, at))


@dataclass(frozen=True, slots=True)
class WriteJob(Task):
    """Writes the files of a split. `own` is the storage of the restore's own folder, in which its splits lie;
    `roots` are those of the destinations. `syncs`: what a task wrote is durable when it ends."""

    COLUMNS = WRITTEN

    folder: str
    own: str
    splits: tuple[str, ...]
    roots: Roots
    syncs: bool

    def run(self, number: int) -> Mapping[str, Any]:
        report = TaskProgress(open_storage(self.own), "").counter(str(number))
        done = {"share": number, "entries": 0, "bytes": 0, "kept": 0, "damaged": 0}
        names: list[str] = []
        with Folder(self.folder) as folder:
            for (destination, path), group in groupby(self._files(number), _OBJECT):
                files = list(group)
                ranges = Ranges(self.roots.open(destination), path, [(f.position, f.bytes) for f in files])
                before: File | None = None
                for file in files:
                    try:
                        linked = before if before and file.was_one_with(before) else None
                        chunks = partial(ranges.read, file.position, file.bytes)
                        done["kept"] += not folder.write(file, chunks, linked)
                        done["entries"] += 1
                        done["bytes"] += file.bytes or 0
                        before = file
                    except (Damaged, NotFound) as error:
                        done["damaged"] += 1
                        if len(names) < NAMED:
                            names.append(f"{file.target}: {error.message}")
                    report(1, file.bytes or 0)
            if self.syncs:
                folder.sync()
        return {**done, "names": json.dumps(names)}

    def _files(self, number: int) -> Iterator[File]:
        import pyarrow as pa

        with open_storage(self.own).open(self.splits[number]) as stream:
            for batch in pa.ipc.open_stream(stream):
                for row in batch.to_pylist():
                    yield File(**row)


class Folder:
    """The folder that a restore writes to, opened once; every name is looked up from there, part by part.

    Raises EnvironmentProblem when it is not there, or not the one that the restore began with.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: OrderedDict[str, int] = OrderedDict()
        self._in_hand = ""
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
        """Have a file there, as a hard link to `linked` where that can be; False when it is there already.

        Raises Damaged (its bytes differ from the catalog, or the catalog has no checksum), NotFound (they
        are gone), Refused (another file or a symbolic link is in the way), EnvironmentProblem.
        """
        if file.sha256 is None:
            raise Damaged(f"the catalog has no checksum of its bytes in {file.path}: they may be anything's")
        with self._explained(file.target):
            above, _, name = file.target.rpartition("/")
            self._in_hand = above
            folder = self._walk(above, make=True)
            found = self._found(folder, name, file)
            if found == "whole":
                return False
            torn = found == "torn"
            if linked is None or not self._link(linked, folder, name, file, replaces=torn):
                self._new(folder, name, file, chunks(), replaces=torn)
        return True

    def create_folders(self, folders: Iterable[RestoredFolder], *, existing: bool) -> None:
        """Create folders that this account alone may enter until `finish_folders`.

        Each of `folders` precedes those in it. `existing`: only change folders that are already there.

        Raises Refused (a file or a symbolic link is in the way), EnvironmentProblem.
        """
        for folder in folders:
            with self._explained(folder.target):
                handle = self._find(folder.target) if existing else self._create_private(folder.target)
                # A run before this one may have given it its own mode.
                if handle is not None and os.fstat(handle).st_mode & _OWNER != _OWNER:
                    os.fchmod(handle, _OWNER)

    def finish_folders(self, folders: Iterable[RestoredFolder]) -> None:
        """Give folders that are there their permissions and times, each after all that is in it.

        A change in a folder sets its time, and one of mode 0500 takes no files. `folders` come in the order
        of `create_folders`. Raises Refused, EnvironmentProblem.
        """
        above: list[RestoredFolder] = []
        for folder in folders:
            while above and not folder.target.startswith(f"{above[-1].target}/"):
                self._finish(above.pop())
            above.append(folder)
        while above:
            self._finish(above.pop())

    def _finish(self, folder: RestoredFolder) -> None:
        with self._explained(folder.target):
            handle = self._find(folder.target)
            if handle is not None:
                folder.apply(handle)

    def _find(self, path: str) -> int | None:
        """The folder `path`; None where there is none."""
        try:
            return self._walk(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _create_private(self, path: str) -> int:
        above, _, name = path.rpartition("/")
        parent = self._walk(above, make=True)
        with suppress(FileExistsError):
            os.mkdir(name, _OWNER, dir_fd=parent)
        return self._walk(path)

    def sync(self) -> None:
        """Make all that was written durable."""
        with self._explained("."):
            _sync_file_system(self._open[""])

    def _found(self, folder: int, name: str, file: File) -> Literal["nothing", "torn", "whole"]:
        """What an earlier run wrote of the file. What it left in pieces when the power went is its own too,
        by its time."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return "nothing"
        if not stat.S_ISREG(found.st_mode) or found.st_mtime_ns != file.mtime_ms * 1_000_000:
            raise self._in_the_way(file)
        if file.bytes is not None and found.st_size != file.bytes:
            return "torn"
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(handle, "rb") as stream:
            same = hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
        return "whole" if same else "torn"

    def _link(self, linked: File, folder: int, name: str, file: File, *, replaces: bool) -> bool:
        above, _, other = linked.target.rpartition("/")
        source = self._walk(above)
        if replaces:
            os.unlink(name, dir_fd=folder)
        return self._named(source, other, folder, name, file)

    def _new(
        self, folder: int, name: str, file: File, chunks: Iterator[memoryview], *, replaces: bool
    ) -> None:
        temporary = secrets.token_hex(8)
        handle = os.open(temporary, _NEW, 0o600, dir_fd=self._temporary)
        try:
            try:
                _copy(handle, file, chunks)
                os.fchmod(handle, file.mode & _PERMISSIONS)
                at = file.mtime_ms * 1_000_000
                os.utime(handle, ns=(at, at))
            finally:
                os.close(handle)
            # A rename replaces what somebody put there meanwhile, a link does not.
            if not replaces and self._named(self._temporary, temporary, folder, name, file):
                os.unlink(temporary, dir_fd=self._temporary)
            else:
                os.rename(temporary, name, src_dir_fd=self._temporary, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._temporary)
            raise

    def _named(self, source: int, other: str, folder: int, name: str, file: File) -> bool:
        """Give what is called `other` one more name; False where the file system makes no (more) links."""
        try:
            os.link(other, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise self._in_the_way(file) from None
        except OSError:  # each file system reports it in its own way; other errors are met again
            return False
        return True

    def _in_the_way(self, file: File) -> Refused:
        return Refused(
            f"{self._path}/{file.target} is there, and was not written by this restore.",
            hint="Move it away, or restore into a folder that is empty.",
        )

    def _walk(self, path: str, *, make: bool = False) -> int:
        """The folder `path`, below this one: open, and kept open for the next files."""
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        above, _, name = path.rpartition("/")
        parent = self._walk(above, make=make)
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
        handle = os.open(name, _FOLDER, dir_fd=parent)
        self._open[path] = handle
        if len(self._open) > _OPEN_FOLDERS:
            kept = ("", _TEMPORARY, self._in_hand, above, path)
            oldest = next(key for key in self._open if key not in kept)
            os.close(self._open.pop(oldest))
        return handle

    @contextmanager
    def _explained(self, target: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = f"{self._path}/{target}"
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Refused(
                    f"A file or a symbolic link is in the way of {where}.",
                    hint="Restore into a folder that is empty and that nobody else writes to.",
                ) from error
            raise EnvironmentProblem(
                f"Cannot write {where}: {os.strerror(error.errno or 0)}.",
                hint="Make room, or give the right to write there; then run the same command again.",
            ) from error


def _copy(handle: int, file: File, chunks: Iterator[memoryview]) -> None:
    sha256 = hashlib.sha256()
    size = 0
    for chunk in chunks:
        sha256.update(chunk)
        size += len(chunk)
        _write_sparse(handle, chunk)
    os.ftruncate(handle, size)  # where it ends in a hole
    if sha256.hexdigest() != file.sha256:
        raise Damaged(f"its bytes at {file.position} of {file.path} are not as they were written (sha256)")


def _write_sparse(handle: int, chunk: memoryview) -> None:
    """Write a chunk where the file stands, with holes for its blocks of zeros: a disk image is as small again
    as it was."""
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
    """Write what the file system of an open folder still holds in memory."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):  # only Linux has it
        os.sync()
        return
    if syncfs(handle) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
