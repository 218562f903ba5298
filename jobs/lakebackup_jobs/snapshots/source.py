"""Reading files of a snapshot: opened once, hashed while read, and refused when not as listed."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, NamedTuple, Self

from lakebackup.errors import Refused
from lakebackup_jobs.snapshots.find import STAY, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The role of a folder in a listing.
FOLDER = "folder"
#: What is known of a file that is listed.
LISTED = (
    "scope STRING, region STRING, name STRING, role STRING, folder STRING, bytes BIGINT, mtime_ns BIGINT, "
    "mtime_ms BIGINT, mode INT, links INT, device BIGINT, inode BIGINT, ctime_ns BIGINT"
)
_PIECE = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Listed(NamedTuple):
    """A file as it was when it was listed."""

    file: str
    bytes: int
    mtime_ns: int
    inode: int


class Entry(NamedTuple):
    """A row of the query snapshot_shares: a file or folder of a snapshot, as it was when it was listed."""

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
    ctime_ns: int | None
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
    def listed(self) -> Listed:
        """What the file must still be when it is read."""
        return Listed(f"{self.folder}/{self.name}", self.bytes, self.mtime_ns, self.inode)

    @property
    def first(self) -> tuple[str, str, str]:
        """The name among its hard links that is copied."""
        return self.first_scope, self.first_region, self.first_name


class SourceFile:
    """A file as a stream for `Storage.upload`; once it is read to its end, `sha256` is of all of it.

    `tell` is called with the number of bytes of each piece that was read.
    Raises Refused (it is not as it was listed), EnvironmentProblem.
    """

    def __init__(self, listed: Listed, tell: Callable[[int], None]) -> None:
        self._listed, self._tell = listed, tell
        self._hash = hashlib.sha256()
        self._count = 0
        with reading(listed.file):
            self._handle = os.open(listed.file, _FLAGS)
        try:
            self._require_unchanged()
        except BaseException:
            os.close(self._handle)
            raise

    @property
    def sha256(self) -> str:
        """Of what was read so far."""
        return self._hash.hexdigest()

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end, when the file still is what was listed."""
        with reading(self._listed.file):
            data = os.read(self._handle, size)
        if data:
            self._hash.update(data)
            self._count += len(data)
            self._tell(len(data))
        else:
            # Looked at after reading and compared with the listing: this covers all the time between.
            self._require_unchanged()
            if self._count != self._listed.bytes:
                raise Refused(
                    f"{self._listed.file} gave {self._count} bytes and has {self._listed.bytes}.", hint=STAY
                )
        return data

    def pieces(self) -> Iterator[bytes]:
        """The file to its end."""
        return iter(lambda: self.read(_PIECE), b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)

    def _require_unchanged(self) -> None:
        found = os.fstat(self._handle)
        now = (found.st_size, signed(found.st_mtime_ns), signed(found.st_ino))
        what = [
            f"its {name} was {old} and is {new}"
            for name, old, new in zip(("size", "time in ns", "inode"), self._listed[1:], now, strict=True)
            if old != new
        ]
        if what:
            raise Refused(f"{self._listed.file} changed under the backup: {', '.join(what)}.", hint=STAY)


def signed(number: int) -> int:
    """The low 64 bits of a number as the catalog's engines have them, with a sign.

    Device and inode numbers are unsigned; times in ns leave the 64 bits in 1677 and in 2262. Two that are
    equal afterwards are taken for equal.
    """
    number &= (1 << 64) - 1
    return number if number < 1 << 63 else number - (1 << 64)
