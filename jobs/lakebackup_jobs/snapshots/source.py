"""Reads files of a snapshot: each is opened once and hashed while it is read.

A file that is not as it was listed is refused. It is compared with the listing before it is read and after.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

from lakebackup.errors import Refused
from lakebackup.formats.snapshots.compression import Codec, sample_positions
from lakebackup_jobs.snapshots.find import STAY, reading

#: The role of a folder in a listing.
FOLDER = "folder"
_PIECE = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Listed(NamedTuple):
    """A file as it was when it was listed."""

    file: str
    bytes: int
    mtime_ns: int
    inode: int


class Entry(NamedTuple):
    """A row of the query snapshot_work: a file or folder of a snapshot, as it was when it was listed."""

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
    inode: int
    ctime_ns: int | None
    added_in: int | None
    change: str
    same_destination: str | None
    same_path: str | None
    same_position: int | None
    same_codec: Codec | None
    same_stored_bytes: int | None
    same_key_id: str | None
    same_sha256: str | None
    first_scope: str
    first_region: str
    first_name: str

    @property
    def listed(self) -> Listed:
        """The file as it must still be when it is read."""
        return Listed(f"{self.folder}/{self.name}", self.bytes, self.mtime_ns, self.inode)

    @property
    def first(self) -> tuple[str, str, str]:
        """The key of the hard link that is copied: its scope, region and name."""
        return self.first_scope, self.first_region, self.first_name


class SourceFile:
    """A file as a stream for `Storage.upload`. After it is read to its end, `sha256` covers all of it.

    `on_read` is called with the number of bytes of each read. Raises Refused (the file is not as it was
    listed), EnvironmentProblem.
    """

    def __init__(self, listed: Listed, on_read: Callable[[int], None]) -> None:
        self._listed, self._on_read = listed, on_read
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
        """The SHA-256 of the bytes that were read so far."""
        return self._hash.hexdigest()

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end, where the file must still be as it was listed."""
        with reading(self._listed.file):
            chunk = os.read(self._handle, size)
        if chunk:
            self._hash.update(chunk)
            self._count += len(chunk)
            self._on_read(len(chunk))
        else:
            # This comparison with the listing also notices a change during the reading.
            self._require_unchanged()
            if self._count != self._listed.bytes:
                raise Refused(
                    f"{self._listed.file} gave {self._count} bytes and has {self._listed.bytes}.", hint=STAY
                )
        return chunk

    def pieces(self) -> Iterator[bytes]:
        """Yield the chunks of the file up to its end."""
        return iter(lambda: self.read(_PIECE), b"")

    def sample(self) -> Iterator[bytes]:
        """Yield some parts of the file, which are neither hashed nor counted."""
        with reading(self._listed.file):
            for position, size in sample_positions(self._listed.bytes):
                yield os.pread(self._handle, size, position)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)

    def _require_unchanged(self) -> None:
        status = os.fstat(self._handle)
        values = (status.st_size, signed(status.st_mtime_ns), signed(status.st_ino))
        changes = [
            f"its {name} was {old} and is {new}"
            for name, old, new in zip(("size", "time in ns", "inode"), self._listed[1:], values, strict=True)
            if old != new
        ]
        if changes:
            raise Refused(f"{self._listed.file} changed under the backup: {', '.join(changes)}.", hint=STAY)


def signed(number: int) -> int:
    """Return the low 64 bits of a number as a signed number, as the catalog's engines store it.

    Device and inode numbers are unsigned, and times in ns before 1677 or after 2262 do not fit into 64 bits.
    Numbers with the same low 64 bits count as equal.
    """
    number &= (1 << 64) - 1
    return number if number < 1 << 63 else number - (1 << 64)
