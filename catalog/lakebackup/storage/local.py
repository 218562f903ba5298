"""A folder as storage. It has only complete objects, which are durable when a call returns.

An object is written to a temporary file in `.tmp/` of the root and synced. Then it gets its name by a hard
link, which fails if the name exists, or by a rename. A process that dies leaves at most a temporary file,
never half an object.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, NotFound, UsageProblem
from lakebackup.storage.interface import AlreadyExists, ObjectStat, ObjectWriter, Source, Storage
from lakebackup.storage.options import modes
from lakebackup.storage.uris import folder_uri, normalized

_TEMPORARY = ".tmp"
_CHUNK = 1 << 20
_OPEN_FILES = 100
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# These flags follow no link and do not wait for the writer of a FIFO.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Folders whose names this process has synced in their parents -> inode of the folder.
_DURABLE: dict[str, int] = {}
_MAX_DURABLE = 10_000
_STRAY_AFTER_S = 24 * 3600  # a temporary file unchanged for a day belongs to a dead process
_HINTS = {
    errno.ENOSPC: "Free some space there, then run the same command again.",
    errno.EDQUOT: "The quota is used up: free some space there, then run the same command again.",
    errno.EACCES: "Give this user read and write permission there.",
    errno.EPERM: "Give this user permission there, on a file system that has hard links.",
    errno.EROFS: "The file system is mounted read-only.",
    errno.EOPNOTSUPP: "Backups need a file system that has hard links.",
    errno.ENAMETOOLONG: "The file system allows no names this long (often 255 bytes).",
}


class LocalStorage(Storage):
    """Objects as files below the folder `root`. The first put creates the folder.

    Anything else below the root (symbolic links, FIFOs, devices) is listed, and reading it raises Damaged.
    Links are not followed, so that a path cannot leave the root. Empty folders stay, since removing one would
    race with a put into it.

    Files are 0600 and new folders 0700, or as LAKEBACKUP_STORAGE__MODE sets, whatever the process's umask is.
    If the storage is not `private`, the umask decides.
    """

    def __init__(self, root: str, *, private: bool = True) -> None:
        self._root = Path(root).resolve()
        mode_bits: tuple[int | None, int | None] = modes() if private else (None, None)
        self._file_mode, self._folder_mode = mode_bits
        self._swept = False

    @property
    def uri(self) -> str:
        return folder_uri(self._root)

    @property
    def server(self) -> str:
        return "the file system"

    def writer(self) -> LocalWriter:
        folder = self._root / _TEMPORARY
        with _translate_errors("write below", str(self._root)):
            self._make_folder(folder)
            self._sweep(folder)
            name = f"{os.getpid()}-{uuid.uuid4().hex}"
            return LocalWriter(folder / name, self._publish, self._file_mode)

    def upload(
        self,
        path: str,
        stream: Source,
        *,
        size_hint: int | None = None,
        if_absent: bool = True,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        del size_hint, metadata
        size = 0
        with self.writer() as writer:
            while data := stream.read(_CHUNK):
                writer.write(data)
                size += len(data)
            writer.commit(path, if_absent=if_absent)
        return size

    def put_together(self, objects: Mapping[str, bytes]) -> None:
        """Store several small objects in one folder, which is synced once.

        Raises AlreadyExists if the first object exists; then none is stored. The others replace objects.
        """
        self._put_open(objects, new_path=next(iter(objects)))

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """As in every storage. Each folder is synced once for _OPEN_FILES objects."""
        remaining = iter(objects.items())
        while chunk := dict(islice(remaining, _OPEN_FILES)):
            self._put_open(chunk)

    def _put_open(self, objects: Mapping[str, bytes], new_path: str = "") -> None:
        """Store objects with all their files open, then sync each folder. Raises AlreadyExists if `new_path`
        exists; the others replace objects."""
        with ExitStack() as stack:
            writers = {path: stack.enter_context(self.writer()) for path in objects}
            for path, writer in writers.items():
                writer.write(objects[path])
                writer.sync()
            for path, writer in writers.items():
                writer.commit(path, if_absent=path == new_path, lasting=False)
            with _translate_errors("write below", str(self._root)):
                for folder in {self._writable_path(path).parent for path in objects}:
                    sync_folder(folder)

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._check_range(path, start, length)
        with self.open(path) as stream, _translate_errors("read", path):
            stream.seek(start)
            return stream.read(-1 if length is None else length)

    def open(self, path: str) -> BinaryIO:
        """As in every storage. Raises Damaged for anything but a regular file."""
        with _translate_errors("read", path):
            try:
                handle = os.open(self._readable_path(path), _READ_FLAGS)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                    raise self._not_a_file(path) from error
                raise
            try:
                self._require_file(path, os.fstat(handle).st_mode)
            except BaseException:
                os.close(handle)
                raise
            return os.fdopen(handle, "rb")

    def stat(self, path: str) -> ObjectStat:
        with _translate_errors("read", path):
            status = self._readable_path(path).lstat()
            self._require_file(path, status.st_mode)
        return _stat(path, status)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectStat]:
        yield from self._list(self._folder(prefix), prefix, start_after)

    def _list(self, folder: str, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        with _translate_errors("list", prefix or str(self._root)):
            try:
                entries = [entry for entry in os.scandir(folder) if prefix or entry.name != _TEMPORARY]
            except (FileNotFoundError, NotADirectoryError):
                return
        names = {f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name: e for e in entries}
        for name in sorted(names):
            if name.endswith("/"):
                # Skip a folder that sorts before `start_after`, unless `start_after` is a path inside it.
                if prefix + name > start_after or start_after.startswith(prefix + name):
                    yield from self._list(names[name].path, prefix + name, start_after)
            elif prefix + name > start_after:
                try:
                    status = names[name].stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted since the scan
                    continue
                yield _stat(prefix + name, status)

    def children(self, prefix: str = "") -> Iterator[tuple[str, ObjectStat | None]]:
        with _translate_errors("list", prefix or str(self._root)):
            try:
                entries = [*os.scandir(self._folder(prefix))]
            except (FileNotFoundError, NotADirectoryError):
                return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if prefix or entry.name != _TEMPORARY:
                    yield entry.name, None
                continue
            with suppress(FileNotFoundError):  # deleted since the scan
                yield entry.name, _stat(prefix + entry.name, entry.stat(follow_symlinks=False))

    def folders(self, prefix: str = "") -> Iterator[str]:
        folder = self._folder(prefix)
        with _translate_errors("list", prefix or str(self._root)):
            try:
                names = sorted(e.name for e in os.scandir(folder) if e.is_dir(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                return
        for name in names:
            if prefix or name != _TEMPORARY:
                path = f"{prefix}{name}/"
                if any(True for _ in self._list(f"{folder}/{name}", path)):
                    yield name

    def delete(self, path: str) -> None:
        """As in every storage. The deletion is not synced, so a power cut may undo it."""
        with suppress(NotFound), _translate_errors("delete", path):
            folder = self._root / path.rpartition("/")[0]
            if folder != self._root:
                self._writable_path(path.rpartition("/")[0])
            file = self._full_path(path)
            if not stat.S_ISDIR(file.lstat().st_mode):
                file.unlink()  # deletes a link itself, not its target

    def _full_path(self, path: str) -> Path:
        """The absolute path of an object. Raises UsageProblem if `path` is malformed or reserved."""
        self._check(path)
        if path.split("/")[0] == _TEMPORARY:
            raise UsageProblem(f"{path!r} is reserved below the storage's root {self._root}.")
        return self._root / path

    def _writable_path(self, path: str) -> Path:
        """Like `_full_path`. Raises UsageProblem also for a path through a symbolic link."""
        full = self._full_path(path)
        if _is_linked(self._root, path.split("/")):
            raise UsageProblem(
                f"{path!r} leads through a symbolic link below {self._root}.",
                hint="Replace the link by the folder or file itself (a bind mount is fine).",
            )
        return full

    def _readable_path(self, path: str) -> Path:
        """Like `_full_path`. Raises Damaged for a path through a symbolic link: lakebackup creates none.

        The caller does not follow the last part, if that is a link.
        """
        full = self._full_path(path)
        if _is_linked(self._root, path.split("/")[:-1]):
            raise self._not_a_file(path)
        return full

    def _require_file(self, path: str, mode: int) -> None:
        if stat.S_ISDIR(mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._root / path))
        if not stat.S_ISREG(mode):
            raise self._not_a_file(path)

    def _not_a_file(self, path: str) -> Damaged:
        return Damaged(
            f"{path} in {self._root} is no regular file, or is behind a symbolic link.",
            hint="Put the object itself back, from a copy of the repository.",
        )

    def _folder(self, prefix: str) -> str:
        self._check_prefix(prefix)
        return str(self._writable_path(prefix[:-1]) if prefix else self._root)

    def _publish(self, temporary: Path, path: str, if_absent: bool, lasting: bool) -> None:
        target = self._writable_path(path)
        folder = target.parent
        self._make_folder(folder)
        try:
            if if_absent:
                target.hardlink_to(temporary)
            else:
                temporary.replace(target)
        except FileExistsError:
            raise AlreadyExists(f"{path} is there already, in {self._root}.") from None
        if lasting:
            sync_folder(folder)

    def _make_folder(self, folder: Path) -> None:
        """Create `folder` and its parents, and make their names durable.

        An existing folder may be new and not synced yet by the process that created it. So every process
        syncs the names of the folders that it uses, once.
        """
        path = str(folder)
        with suppress(FileNotFoundError):
            if path in _DURABLE and _DURABLE[path] == folder.lstat().st_ino:
                return
        if self._root in folder.parents or not folder.is_dir():
            self._make_folder(folder.parent)
            with suppress(FileExistsError):
                is_ours = folder == self._root or self._root in folder.parents
                if self._folder_mode is None or not is_ours:
                    folder.mkdir()
                else:
                    folder.mkdir(0o700)
                    folder.chmod(self._folder_mode)  # mkdir clears the bits of the umask
            sync_folder(folder.parent)
        if len(_DURABLE) >= _MAX_DURABLE:
            _DURABLE.clear()
        _DURABLE[path] = folder.lstat().st_ino

    def _sweep(self, folder: Path) -> None:
        """Delete the temporary files of dead processes. Does so once for a storage."""
        if self._swept:
            return
        self._swept = True
        cutoff = time.time() - _STRAY_AFTER_S
        for stray in folder.iterdir():
            with suppress(FileNotFoundError, PermissionError):
                if stray.lstat().st_mtime < cutoff:
                    stray.unlink()


class LocalWriter(ObjectWriter):
    """An object in a temporary file, which a link or a rename publishes."""

    def __init__(
        self, temporary: Path, publish: Callable[[Path, str, bool, bool], None], mode: int | None
    ) -> None:
        self._temporary = temporary
        self._publish = publish
        handle = os.open(temporary, _CREATE_FLAGS, 0o666 if mode is None else 0o600)
        self._file = os.fdopen(handle, "wb")
        if mode is not None:
            os.fchmod(handle, mode)
        self._synced = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with _translate_errors("write", str(self._temporary)):
            self._synced = False
            self._file.write(data)

    def sync(self) -> None:
        """Make the written bytes durable."""
        with _translate_errors("write", str(self._temporary)):
            if not self._synced:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._synced = True

    def commit(
        self,
        path: str,
        *,
        if_absent: bool = True,
        metadata: Mapping[str, str] | None = None,
        lasting: bool = True,
    ) -> None:
        """As in every storage. Unless `lasting`, the name is only durable after the folder's next sync."""
        del metadata
        self.sync()
        with _translate_errors("write", path):
            self._publish(self._temporary, path, if_absent, lasting)
            self._file.close()

    def close(self) -> None:
        with suppress(OSError):  # the disk is full, but unflushed bytes are discarded anyway
            self._file.close()
        with suppress(FileNotFoundError):
            self._temporary.unlink()


def _stat(path: str, status: os.stat_result) -> ObjectStat:
    return ObjectStat(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _is_linked(root: Path, parts: Iterable[str]) -> bool:
    """Whether any part of a path below the folder `root` is a symbolic link."""
    path = str(root)
    with suppress(OSError):  # the caller gets the error when it uses the path
        for part in parts:
            path = f"{path}/{part}"
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return True
    return False


def local_folder(folder: str, hint: str = "Give a folder.") -> Path:
    """The path of a folder of this machine, which need not exist. Raises UsageProblem for another storage."""
    uri = normalized(folder)
    if not uri.startswith("file://"):
        raise UsageProblem(f"{uri} is no folder of this machine.", hint=hint)
    return Path(uri.removeprefix("file://"))


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn the operating system's errors in the block into EnvironmentProblem."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            f"Cannot write to {folder}: {error}.",
            hint="Make room or give the right to write there, or name another folder.",
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names of the files in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _translate_errors(action: str, path: str) -> Iterator[None]:
    """Turn the operating system's errors in the block into errors of lakebackup."""
    try:
        yield
    except LakebackupError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        if action in ("read", "delete"):
            raise NotFound(f"There is no object {path}.") from error
        raise EnvironmentProblem(f"Cannot {action} {path}: {error}.") from error
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "")
        raise EnvironmentProblem(f"Cannot {action} {path}: {error}.", hint=hint) from error
