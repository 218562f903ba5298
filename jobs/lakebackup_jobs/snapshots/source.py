"""Reading files of a snapshot: opened once, hashed while read, and refused when not as listed."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from lakebackup.errors import Refused
from lakebackup_jobs.snapshots.find import reading

if TYPE_CHECKING:
    from types import TracebackType

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Listed(Protocol):
    """A file as it was when it was listed."""

    @property
    def file(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...
    @property
    def inode(self) -> int: ...


class Entry(NamedTuple):
    """A row of the query snapshot_shares: a file of a snapshot, as it was when it was listed."""

    scope: str
    region: str
    name: str
    role: str
    folder: str
    bytes: int
    mtime_ns: int
    mtime_ms: int
    mode: int
    links: int
    device: int
    inode: int
    added_in: int | None
    change: str
    same_destination: str | None
    same_path: str | None
    same_position: int | None
    same_sha256: str | None
    first_scope: str
    first_region: str
    first_name: str
    task: int

    @property
    def file(self) -> str:
        """Where it is."""
        return f"{self.folder}/{self.name}"

    @property
    def first(self) -> tuple[str, str, str]:
        """The name among its hard links that is copied."""
        return self.first_scope, self.first_region, self.first_name


class Throttle:
    """Lets a task read no more than `rate` bytes a second; None: as fast as it goes."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._read = 0

    def spend(self, count: int) -> None:
        """Wait until as many bytes more may have been read."""
        if self._rate:
            self._read += count
            early = self._read / self._rate - (time.monotonic() - self._began)
            if early > 0:
                time.sleep(early)


def read_small(entry: Listed) -> bytes:
    """A whole file that fits into memory. Raises Refused (it is not as it was listed), EnvironmentProblem."""
    path = entry.file
    with reading(path):
        handle = os.open(path, _FLAGS)
        try:
            data = os.read(handle, entry.bytes + 1)
            # Looked at after reading and compared with the listing: this covers all the time between.
            found = os.fstat(handle)
        finally:
            os.close(handle)
    _require_unchanged(entry, found)
    if len(data) != entry.bytes:
        raise _cut(entry, len(data))
    return data


class SourceFile:
    """A file as a stream for `Storage.upload`; once it is read to its end, `sha256` is of all of it."""

    def __init__(self, entry: Listed, throttle: Throttle) -> None:
        self._entry, self._throttle = entry, throttle
        self._hash = hashlib.sha256()
        self._count = 0
        with reading(entry.file):
            self._handle = os.open(entry.file, _FLAGS)
        try:
            _require_unchanged(entry, os.fstat(self._handle))
        except BaseException:
            os.close(self._handle)
            raise

    @property
    def sha256(self) -> str:
        """Of what was read so far."""
        return self._hash.hexdigest()

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end, when the file still is what was listed. Raises as `read_small`."""
        with reading(self._entry.file):
            data = os.read(self._handle, size)
        if data:
            self._hash.update(data)
            self._count += len(data)
            self._throttle.spend(len(data))
        else:
            _require_unchanged(self._entry, os.fstat(self._handle))
            if self._count != self._entry.bytes:
                raise _cut(self._entry, self._count)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)


def _require_unchanged(entry: Listed, found: os.stat_result) -> None:
    now = (found.st_size, found.st_mtime_ns, signed(found.st_ino))
    listed = (entry.bytes, entry.mtime_ns, entry.inode)
    what = [
        f"its {name} was {old} and is {new}"
        for name, old, new in zip(("size", "time in ns", "inode"), listed, now, strict=True)
        if old != new
    ]
    if what:
        raise Refused(f"{entry.file} changed under the backup: {', '.join(what)}.", hint=_STAY)


def _cut(entry: Listed, count: int) -> Refused:
    return Refused(f"{entry.file} gave {count} bytes and has {entry.bytes}.", hint=_STAY)


_STAY = "A snapshot must stay as it is until its backup is done. Nothing of this one is visible."


def signed(number: int) -> int:
    """An unsigned number of 64 bits as the catalog's engines have it."""
    return number if number < 1 << 63 else number - (1 << 64)
