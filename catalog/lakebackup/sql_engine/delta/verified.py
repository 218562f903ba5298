"""A file system for Arrow that verifies all of a file before it hands out any byte.

Parquet's page checksums do not cover page headers and the footer, where a flipped bit can still change rows.
Files that lakebackup writes have their SHA-256 in their names. Beside files that Spark writes to a folder,
Hadoop puts a CRC-32 of every 512 bytes; lakebackup does the same for its own files, so that Spark verifies
them. A file with neither has only its page checksums.
"""

from __future__ import annotations

import hashlib
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import lru_cache
from itertools import islice
from threading import Event, Lock, get_ident
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from lakebackup.errors import LakebackupError, NotFound
from lakebackup.sql_engine.arrow import leave_pandas_out
from lakebackup.sql_engine.delta.log import folder_of, opened, per_process, pool
from lakebackup.sql_engine.delta.sums import is_whole
from lakebackup.sql_engine.failures import passed_on

leave_pandas_out()

_SHA256_NAME = re.compile(r"part-[0-9a-f]{32}-([0-9a-f]{64})\.parquet")
_CACHE_BYTES = 128 << 20
_READ_AHEAD = 12
_ENDING_S = 2.0
# For this many seconds a verified file is not verified again, while it stays the same file: the statements of
# a plan read the same files again and again, and hashing is the largest part of a scan.
_TRUST_S = 60.0
_ending = Event()
# The ids of the threads that are opening a file; most are Arrow's own.
_opening: set[int] = set()


def open_no_more(*, reading: bool) -> None:
    """Refuse to open files, and wait until no thread opens one, at most two seconds. Call it before the
    process ends: a thread of Arrow that then enters Python crashes the process, or blocks it forever.

    `reading`: whether an answer was not read to its end.
    """
    _ending.set()
    deadline = time.monotonic() + _ENDING_S
    while (reading or _opening) and time.monotonic() < deadline:
        reading = False
        time.sleep(0.05)  # longer than the last thread needs to leave Python


class VerifiedFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """Opens files of a table, in a folder or in object storage, and verifies each. Raises OSError for a
    damaged file."""

    def __init__(self, uri: str) -> None:
        self._root = folder_of(uri)
        self._uri = uri
        self._upcoming: Iterator[str] = iter(())
        self._verified: dict[str, tuple[tuple[int, ...], float]] = {}
        self._local = fs.LocalFileSystem()

    @property
    def remote(self) -> bool:
        """Whether the files are in object storage."""
        return self._root is None

    def mark(self, path: str) -> tuple[int, ...]:
        """Return a value that changes when another file gets this path. In object storage it is constant,
        since objects are not replaced there. Raises OSError when there is no regular file."""
        if self._root is None:
            return ()
        status = (self._root / path).lstat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would never end, a link leads elsewhere
            raise OSError(f"{self._root / path} is no regular file")
        return status.st_ino, status.st_size, status.st_mtime_ns

    def open_input_file(self, path: str) -> pa.NativeFile:
        if _ending.is_set():
            raise OSError("this process ends")
        thread_id = get_ident()
        _opening.add(thread_id)
        try:
            return self._open(path)
        finally:
            _opening.discard(thread_id)

    def _open(self, path: str) -> pa.NativeFile:
        if self._root is None:
            return pa.BufferReader(self._next(path))
        file = self._root / path
        mark, time_s = self.mark(path), time.monotonic()
        last_check = self._verified.get(path)
        if last_check is None or last_check[0] != mark or time_s - last_check[1] > _TRUST_S:
            data = file.read_bytes()
            sha256_name = _SHA256_NAME.fullmatch(file.name)
            is_intact = (
                hashlib.sha256(data).hexdigest() == sha256_name[1] if sha256_name else is_whole(file, data)
            )
            if not is_intact:
                raise OSError(f"checksum of {file} is wrong")
            self._verified[path] = mark, time_s
        # Arrow opens the file itself: a thread of it that freed Python bytes would block a process that ends.
        return self._local.open_input_file(str(file))

    def expect(self, paths: Iterable[str], largest: int) -> None:
        """Announce the files that will be read from object storage, in order, so that some are fetched ahead.

        `largest`: the size of the largest, in bytes. The files that are fetched ahead fill at most half the
        cache.
        """
        self._upcoming = iter(list(paths))  # several threads take paths from it
        for path in islice(self._upcoming, min(_READ_AHEAD, _CACHE_BYTES // 2 // max(1, largest))):
            _fetch_cache().ask(self._uri, path)

    def _next(self, path: str) -> pa.Buffer:
        future = _fetch_cache().ask(self._uri, path)
        next_path = next(self._upcoming, None)
        if next_path:
            _fetch_cache().ask(self._uri, next_path)
        return future.result()

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
        raise OSError("this file system is read-only")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _read_only
    delete_root_dir_contents = delete_file = move = copy_file = _read_only
    open_output_stream = open_append_stream = _read_only


@lru_cache(maxsize=1024)
def verified_files(uri: str) -> fs.PyFileSystem:
    """Return the file system of the files below a URI, for Arrow's datasets.

    It is cached, so that no thread of Arrow ever drops the last reference to one: freeing it needs Python,
    which would block a process that ends.
    """
    return fs.PyFileSystem(VerifiedFiles(uri))


class _FetchCache:
    """Files from object storage, fetched before they are needed. The files used last stay in memory: a
    table's files do not change, and a query reads the same file several times."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, str], Future[pa.Buffer]] = OrderedDict()
        self._lock = Lock()

    def ask(self, uri: str, path: str) -> Future[pa.Buffer]:
        with self._lock:
            future = self._files.pop((uri, path), None)
            if future is None or (future.done() and future.exception()):
                future = pool().submit(_fetch, uri, path)
            self._files[uri, path] = future
            sizes = {key: _bytes(fetched) for key, fetched in self._files.items() if fetched.done()}
            total = sum(sizes.values())
            for key, size in sizes.items():
                if total > _CACHE_BYTES:
                    total -= size
                    del self._files[key]
            return future


def _bytes(future: Future[pa.Buffer]) -> int:
    return 0 if future.exception() else int(future.result().size)


def _fetch(uri: str, path: str) -> pa.Buffer:
    """Fetch a file into a buffer of Arrow. Raises OSError when it cannot be read or is damaged."""
    root, _, table = uri.rpartition("/")
    try:
        data = opened(root).get(f"{table}/{path}")
    except NotFound:  # not passed on, which would mean that there is no table: its log names the file
        raise OSError(f"{uri}/{path} is gone") from None
    except LakebackupError as error:
        raise passed_on(error) from error
    sha256_name = _SHA256_NAME.fullmatch(path)
    if sha256_name and hashlib.sha256(data).hexdigest() != sha256_name[1]:
        raise OSError(f"checksum of {uri}/{path} is wrong")
    sink = pa.BufferOutputStream()
    sink.write(data)
    return sink.getvalue()


@per_process
def _fetch_cache() -> _FetchCache:
    return _FetchCache()
