"""A table's folder as Arrow reads it, where each file is verified whole before any byte of it is used.

Parquet's page checksums leave out page headers and the footer: a flipped bit there can still give other rows.
Files of `delta.append` carry their SHA-256 in their name; Hadoop puts a CRC-32 of every 512 bytes beside
those that Spark writes to a folder, and we beside ours, so that Spark verifies them too. A file with
neither has its page checksums alone.
"""

from __future__ import annotations

import hashlib
import re
import stat
import time
from collections import OrderedDict
from functools import lru_cache
from itertools import islice
from threading import Event, Lock, get_ident
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from lakebackup.errors import LakebackupError, NotFound
from lakebackup.sql_engine.arrow import leave_pandas_out
from lakebackup.sql_engine.delta.log import folder_of, opened, per_process, pool
from lakebackup.sql_engine.delta.sums import is_whole
from lakebackup.sql_engine.failures import passed_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

leave_pandas_out()

_NAMED = re.compile(r"part-[0-9a-f]{32}-([0-9a-f]{64})\.parquet")
_KEPT_BYTES = 128 << 20
_AHEAD = 12
_ENDING_S = 2.0
# For so long a file that was found whole counts as whole while it stays the same file: the statements of a
# plan read the same files one after the other, and hashing is most of what a scan costs.
_WHOLE_S = 60.0
_ending = Event()
# Threads that open a file, most of them Arrow's own.
_opening: set[int] = set()


def open_no_more(*, reading: bool) -> None:
    """Before the process ends: a thread of Arrow's that wants Python then crashes it, or keeps it for ever.

    `reading`: whether an answer was not read to its end.
    """
    _ending.set()
    deadline = time.monotonic() + _ENDING_S
    while (reading or _opening) and time.monotonic() < deadline:
        reading = False
        time.sleep(0.05)  # longer than the last of them needs to leave Python


class VerifiedFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """Reads files below a folder or a place in object storage, whole; IOError when one is not as it was
    written."""

    def __init__(self, uri: str) -> None:
        self._root = folder_of(uri)
        self._uri = uri
        self._coming: Iterator[str] = iter(())
        self._found_whole: dict[str, tuple[tuple[int, ...], float]] = {}
        self._local = fs.LocalFileSystem()

    @property
    def remote(self) -> bool:
        """Whether a file is a request."""
        return self._root is None

    def mark(self, path: str) -> tuple[int, ...]:
        """What differs when another file has this path; in object storage, where nothing damages one, never.
        Raises OSError when it is gone."""
        if self._root is None:
            return ()
        found = (self._root / path).lstat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would never end, a link leads elsewhere
            raise OSError(f"{self._root / path} is no regular file")
        return found.st_ino, found.st_size, found.st_mtime_ns

    def open_input_file(self, path: str) -> pa.NativeFile:
        if _ending.is_set():
            raise OSError("this process ends")
        me = get_ident()
        _opening.add(me)
        try:
            return self._open(path)
        finally:
            _opening.discard(me)

    def _open(self, path: str) -> pa.NativeFile:
        if self._root is None:
            return pa.BufferReader(self._next(path))
        file = self._root / path
        mark, now = self.mark(path), time.monotonic()
        before = self._found_whole.get(path)
        if before is None or before[0] != mark or now - before[1] > _WHOLE_S:
            data = file.read_bytes()
            named = _NAMED.fullmatch(file.name)
            whole = hashlib.sha256(data).hexdigest() == named[1] if named else is_whole(file, data)
            if not whole:
                raise OSError(f"checksum of {file} is wrong")
            self._found_whole[path] = mark, now
        # A file of Arrow's own: Python bytes freed by one of its threads would stop a process that is ending.
        return self._local.open_input_file(str(file))

    def expect(self, paths: Iterable[str], largest: int) -> None:
        """Files of a place in object storage that will be read, in their order: some are on their way at a
        time, as many as what is kept has room for twice when each has `largest` bytes."""
        self._coming = iter(list(paths))  # several threads read on from it
        for path in islice(self._coming, min(_AHEAD, _KEPT_BYTES // 2 // max(1, largest))):
            _fetched().ask(self._uri, path)

    def _next(self, path: str) -> pa.Buffer:
        found = _fetched().ask(self._uri, path)
        ahead = next(self._coming, None)
        if ahead:
            _fetched().ask(self._uri, ahead)
        return found.result()

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def get_type_name(self) -> str:
        return "verified"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        if self._root is None:
            return [fs.FileInfo(path, fs.FileType.File) for path in paths]
        return list(self._local.get_file_info([str(self._root / path) for path in paths]))

    def _read_only(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise OSError("this file system is only read")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _read_only
    delete_root_dir_contents = delete_file = move = copy_file = _read_only
    open_output_stream = open_append_stream = _read_only


@lru_cache(maxsize=1024)
def verified_files(uri: str) -> fs.PyFileSystem:
    """The files below a URI as Arrow's datasets read them.

    Kept, so that no thread of Arrow's is ever the last to hold one: it would want Python to free it, and stop
    a process that is ending.
    """
    return fs.PyFileSystem(VerifiedFiles(uri))


class _Fetched:
    """Files from object storage, asked for before they are needed; the last ones are kept, since files of a
    table do not change and a question reads the same one several times."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, str], Future[pa.Buffer]] = OrderedDict()
        self._lock = Lock()

    def ask(self, uri: str, path: str) -> Future[pa.Buffer]:
        with self._lock:
            found = self._files.pop((uri, path), None)
            if found is None or (found.done() and found.exception()):
                found = pool().submit(_fetch, uri, path)
            self._files[uri, path] = found
            here = {key: _bytes(future) for key, future in self._files.items() if future.done()}
            held = sum(here.values())
            for key, size in here.items():
                if held > _KEPT_BYTES:
                    held -= size
                    del self._files[key]
            return found


def _bytes(done: Future[pa.Buffer]) -> int:
    return 0 if done.exception() else int(done.result().size)


def _fetch(uri: str, path: str) -> pa.Buffer:
    """A file in memory of Arrow's own. Raises OSError when it cannot be had, or not as it was written."""
    root, _, table = uri.rpartition("/")
    try:
        data = opened(root).get(f"{table}/{path}")
    except NotFound:  # the table is there, since its log names this; a cause would be found in the text
        raise OSError(f"{uri}/{path} is gone") from None
    except LakebackupError as error:
        raise passed_on(error) from error
    named = _NAMED.fullmatch(path)
    if named and hashlib.sha256(data).hexdigest() != named[1]:
        raise OSError(f"checksum of {uri}/{path} is wrong")
    sink = pa.BufferOutputStream()
    sink.write(data)
    return sink.getvalue()


@per_process
def _fetched() -> _Fetched:
    return _Fetched()
