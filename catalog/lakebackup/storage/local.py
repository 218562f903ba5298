"""A folder as storage: complete objects only, durable once a call has returned.

An object is written and synced under `.tmp/` of the root, then given its name by a hard link (which fails
when the name is taken) or a rename. A process that dies leaves at most a stray temporary file, never half
an object.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, NotFound, UsageProblem
from lakebackup.storage import AlreadyExists, ObjectStat, ObjectWriter, Storage
from lakebackup.storage.options import modes
from lakebackup.storage.uris import folder_uri, normalized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakebackup.storage import Source

_TEMPORARY = ".tmp"
_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Never through a link, and without waiting for the writer of a FIFO.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Folders whose own names this process has synced, each with its inode.
_DURABLE: dict[Path, int] = {}
_MOST_DURABLE = 10_000
_STRAY_AFTER_S = 24 * 3600  # a writer that wrote nothing for a day is dead
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
    """Objects as files below the folder `root`, which the first put creates.

    Anything else below the root (symbolic links, FIFOs, devices) is listed, and Damaged when it is read: it
    is never followed, so that a path cannot leave the root, and never waited for.
    Folders that became empty stay: removing them would race with a put into them.

    Files are 0600 and new folders 0700, or as LAKEBACKUP_STORAGE__MODE sets, whatever the process's umask is;
    a storage that is not `private` leaves them to the umask.
    """

    def __init__(self, root: str, *, private: bool = True) -> None:
        self._root = Path(root).resolve()
        found: tuple[int | None, int | None] = modes() if private else (None, None)
        self._file_mode, self._folder_mode = found
        self._swept = False

    @property
    def uri(self) -> str:
        return folder_uri(self._root)

    @property
    def server(self) -> str:
        return "the file system"

    def writer(self) -> LocalWriter:
        folder = self._root / _TEMPORARY
        with _explained("write below", str(self._root)):
            self._make(folder)
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
        """Store a new small object and what belongs to it in the same folder, which is synced once.

        Raises AlreadyExists when the first is there: then none is stored. The others replace what is there.
        """
        with ExitStack() as opened:
            writers = {path: opened.enter_context(self.writer()) for path in objects}
            for path, data in objects.items():
                writers[path].write(data)
                writers[path].sync()
            *before, last = writers
            for path in before:
                writers[path].commit(path, if_absent=path == before[0], lasting=False)
            writers[last].commit(last, if_absent=not before)

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._check_range(path, start, length)
        with self.open(path) as stream, _explained("read", path):
            stream.seek(start)
            return stream.read(-1 if length is None else length)

    def open(self, path: str) -> BinaryIO:
        """As of every storage; Damaged when it is no regular file."""
        with _explained("read", path):
            try:
                handle = os.open(self._read_from(path), _READ)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                    raise self._no_file(path) from error
                raise
            try:
                self._require_file(path, os.fstat(handle).st_mode)
            except BaseException:
                os.close(handle)
                raise
            return os.fdopen(handle, "rb")

    def stat(self, path: str) -> ObjectStat:
        with _explained("read", path):
            found = self._read_from(path).lstat()
            self._require_file(path, found.st_mode)
        return ObjectStat(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectStat]:
        folder = self._folder(prefix)
        with _explained("list", prefix or str(self._root)):
            try:
                entries = [entry for entry in os.scandir(folder) if prefix or entry.name != _TEMPORARY]
            except (FileNotFoundError, NotADirectoryError):
                return
        names = {f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name: e for e in entries}
        for name in sorted(names):
            if name.endswith("/"):
                # All paths of a folder that sorts before `after`, and is none of its own, do too.
                if prefix + name > after or after.startswith(prefix + name):
                    yield from self.list(prefix + name, after=after)
            elif prefix + name > after:
                try:
                    found = names[name].stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted since
                    continue
                yield ObjectStat(prefix + name, found.st_size, found.st_mtime_ns // 1_000_000)

    def folders(self, prefix: str = "") -> Iterator[str]:
        folder = self._folder(prefix)
        with _explained("list", prefix or str(self._root)):
            try:
                names = sorted(e.name for e in os.scandir(folder) if e.is_dir(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                return
        for name in names:
            if (prefix or name != _TEMPORARY) and any(True for _ in self.list(f"{prefix}{name}/")):
                yield name

    def delete(self, path: str) -> None:
        """As of every storage. A deletion may be undone by a power cut."""
        with suppress(NotFound), _explained("delete", path):
            folder = self._root / path.rpartition("/")[0]
            if folder != self._root:
                self._locate(path.rpartition("/")[0])
            file = self._named(path)
            if not stat.S_ISDIR(file.lstat().st_mode):
                file.unlink()  # a link itself is deleted, not its target

    def _named(self, path: str) -> Path:
        """The absolute name of `path`; UsageProblem if malformed or reserved."""
        self._check(path)
        if path.split("/")[0] == _TEMPORARY:
            raise UsageProblem(f"{path!r} is reserved below the storage's root {self._root}.")
        return self._root / path

    def _locate(self, path: str) -> Path:
        """As `_named`; UsageProblem too if it is behind a symbolic link."""
        full = self._named(path)
        if _is_linked(full):
            raise UsageProblem(
                f"{path!r} leads through a symbolic link below {self._root}.",
                hint="Replace the link by the folder or file itself (a bind mount is fine).",
            )
        return full

    def _read_from(self, path: str) -> Path:
        """As `_named`; Damaged if it is behind a symbolic link, which this program never creates."""
        full = self._named(path)
        if _is_linked(full):
            raise self._no_file(path)
        return full

    def _require_file(self, path: str, mode: int) -> None:
        if stat.S_ISDIR(mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._root / path))
        if not stat.S_ISREG(mode):
            raise self._no_file(path)

    def _no_file(self, path: str) -> Damaged:
        return Damaged(
            f"{path} in {self._root} is no regular file, or is behind a symbolic link.",
            hint="Put the object itself back, from a copy of the repository.",
        )

    def _folder(self, prefix: str) -> Path:
        self._check_prefix(prefix)
        return self._locate(prefix[:-1]) if prefix else self._root

    def _publish(self, temporary: Path, path: str, if_absent: bool, lasting: bool) -> None:
        target = self._locate(path)
        folder = target.parent
        self._make(folder)
        try:
            if if_absent:
                target.hardlink_to(temporary)
            else:
                temporary.replace(target)
        except FileExistsError:
            raise AlreadyExists(f"{path} is there already, in {self._root}.") from None
        if lasting:
            sync_folder(folder)

    def _make(self, folder: Path) -> None:
        """Make `folder`, with its name and its parents' durable.

        Another process may have made a folder and not synced it yet, so seeing one is not enough: every
        process syncs the names of the folders it uses, once.
        """
        with suppress(FileNotFoundError):
            if _DURABLE.get(folder) == folder.lstat().st_ino:
                return
        if self._root in folder.parents or not folder.is_dir():
            self._make(folder.parent)
            with suppress(FileExistsError):
                own = folder == self._root or self._root in folder.parents
                if self._folder_mode is None or not own:
                    folder.mkdir()
                else:
                    folder.mkdir(0o700)
                    folder.chmod(self._folder_mode)  # mkdir leaves out what the umask has
            sync_folder(folder.parent)
        if len(_DURABLE) >= _MOST_DURABLE:
            _DURABLE.clear()
        _DURABLE[folder] = folder.lstat().st_ino

    def _sweep(self, folder: Path) -> None:
        """Remove what dead processes left, once a process."""
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - _STRAY_AFTER_S
        for stray in folder.iterdir():
            with suppress(FileNotFoundError, PermissionError):
                if stray.lstat().st_mtime < oldest:
                    stray.unlink()


class LocalWriter(ObjectWriter):
    """A temporary file that a link or a rename publishes."""

    def __init__(
        self, temporary: Path, publish: Callable[[Path, str, bool, bool], None], mode: int | None
    ) -> None:
        self._temporary = temporary
        self._publish = publish
        handle = os.open(temporary, _NEW, 0o666 if mode is None else 0o600)
        self._file = os.fdopen(handle, "wb")
        if mode is not None:
            os.fchmod(handle, mode)
        self._synced = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with _explained("write", str(self._temporary)):
            self._synced = False
            self._file.write(data)

    def sync(self) -> None:
        """Make durable what was written."""
        with _explained("write", str(self._temporary)):
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
        """As of every storage; unless `lasting`, the name becomes durable with the folder's next."""
        del metadata
        self.sync()
        with _explained("write", path):
            self._publish(self._temporary, path, if_absent, lasting)
            self._file.close()

    def close(self) -> None:
        with suppress(OSError):  # unflushed bytes of a full disk: they are discarded anyway
            self._file.close()
        with suppress(FileNotFoundError):
            self._temporary.unlink()


def _is_linked(path: Path) -> bool:
    """Whether some part of an absolute path is a symbolic link."""
    text = os.fspath(path)
    with suppress(OSError):  # whoever uses the path reports it
        for end in (*(at for at, letter in enumerate(text) if letter == "/" and at), len(text)):
            if stat.S_ISLNK(os.lstat(text[:end]).st_mode):
                return True
    return False


def local_folder(folder: str, hint: str = "Give a folder.") -> Path:
    """The path of a folder of this machine, there or not. Raises UsageProblem for another storage."""
    uri = normalized(folder)
    if not uri.startswith("file://"):
        raise UsageProblem(f"{uri} is no folder of this machine.", hint=hint)
    return Path(uri.removeprefix("file://"))


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raises EnvironmentProblem when the operating system refuses what is done in the block."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            f"Cannot write to {folder}: {error}.",
            hint="Make room or give the right to write there, or name another folder.",
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _explained(action: str, path: str) -> Iterator[None]:
    """Turn the operating system's errors into the project's."""
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
