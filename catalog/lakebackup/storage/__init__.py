"""Where bytes are kept: one interface for a folder and for object storage.

Paths are relative to the storage's root, with `/`, never absolute and never through `..`.
Every backend passes tests/contract/test_storage.py.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self, cast

from lakebackup.errors import LakebackupError, NotFound, UsageProblem
from lakebackup.storage.uris import folder_of, unknown_scheme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


#: Bytes to read of an object that should have a few. A stranger's may have gigabytes: it is then damaged.
A_FEW = 1 << 20
#: The same of an object that has a line for each file or backup.
MANY = 1 << 28


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One stored object: path below the root, size in bytes, last change in ms since 1970 UTC."""

    path: str
    bytes: int
    modified_ms: int


class AlreadyExists(LakebackupError):
    """A conditional put lost: the object exists already."""

    exit_code = 8


class ObjectWriter(ABC):
    """An object being written. Nothing is visible until `commit`; leaving the block without it discards."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add `data` at the end; EnvironmentProblem when the disk is full."""

    @abstractmethod
    def commit(self, path: str, *, if_absent: bool = True, metadata: Mapping[str, str] | None = None) -> None:
        """Publish everything written as `path`, durably, in one step, with `metadata` as of `upload`.

        Raises AlreadyExists when `if_absent` and the path is taken; the writer stays usable, so that
        the caller can commit under another path without writing the bytes again.
        """

    @abstractmethod
    def close(self) -> None:
        """Discard what was not committed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Source(Protocol):
    """What `upload` reads: an open file, or a wrapper that hashes, counts or slows down what is read."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none only at the end."""
        ...


class Storage(ABC):
    """The operations the project needs of a storage. Errors: NotFound, AlreadyExists, EnvironmentProblem."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root, as a URI that Spark and `open_storage` understand, without a slash at the end."""

    @property
    @abstractmethod
    def server(self) -> str:
        """What keeps the bytes, for messages; another name means that it may behave otherwise."""

    def hurried(self, seconds: float) -> Storage:
        """The same storage for small requests that are soon worthless: each is sent four times at most, and
        no silence of a server lasts longer than `seconds`."""
        del seconds
        return self

    def put(
        self, path: str, data: bytes, *, if_absent: bool = False, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Store a small object, as `upload` does."""
        self.upload(path, io.BytesIO(data), size_hint=len(data), if_absent=if_absent, metadata=metadata)

    def put_in_parts(self, path: str, data: bytes) -> None:
        """Store a small object if it is absent, in the way in which `upload` stores large ones."""
        self.put(path, data, if_absent=True)

    @abstractmethod
    def writer(self) -> ObjectWriter:
        """Begin a large object whose name is given when it is committed."""

    @abstractmethod
    def upload(
        self,
        path: str,
        stream: Source,
        *,
        size_hint: int | None = None,
        if_absent: bool = True,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Store what `stream` gives to its end as `path`; the number of bytes.

        Atomic and durable, in bounded memory and without a copy on this machine's disk. An error that
        `stream.read` raises ends it with nothing published. AlreadyExists when `if_absent` and the path is
        taken. `size_hint` is the expected size in bytes; a wrong one does no harm. Object storage needs it
        for objects of over 10,000 parts. `metadata` goes with the object where the storage has such (ASCII,
        2 kB in all); a folder ignores it.
        """

    @abstractmethod
    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Bytes `[start, start + length)`, fewer where the object ends; NotFound when there is none."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """A seekable stream over the whole object, for files too large to hold; NotFound as in `get`."""

    @abstractmethod
    def stat(self, path: str) -> ObjectStat:
        """Size and last change; NotFound when there is no such object."""

    def exists(self, path: str) -> bool:
        """Whether there is such an object."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def sha256(self, path: str) -> str:
        """SHA-256 of an object in lower hex; NotFound as in `get`."""
        with self.open(path) as stream:
            return hashlib.file_digest(cast("io.BufferedReader", stream), "sha256").hexdigest()

    @abstractmethod
    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectStat]:
        """Objects whose path starts with `prefix` (a folder, ending in `/`, or nothing), sorted by path; only
        those after `after` in this order, where it is given."""

    @abstractmethod
    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names directly below the folder `prefix` that hold objects, sorted."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete an object; one that does not exist is no error."""

    def _check(self, path: str) -> None:
        if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")):
            raise UsageProblem(
                f"{path!r} is not a path below the storage's root {self.uri}.",
                hint="Paths are relative, parted by '/', without '.' or '..'.",
            )

    def _check_prefix(self, prefix: str) -> None:
        if prefix and not prefix.endswith("/"):
            raise UsageProblem(f"{prefix!r} does not name a folder.", hint="A prefix ends in '/'.")

    def _check_range(self, path: str, start: int, length: int | None) -> None:
        if start < 0 or (length is not None and length < 0):
            raise UsageProblem(f"Cannot read {length} bytes from byte {start} of {path}.")


def open_storage(uri: str, *, private: bool = True) -> Storage:
    """The storage at a URI: a folder's path, `file://` or `s3://bucket/prefix` (or `s3a://`).

    Objects in a folder are for its owner alone, or as `[storage] mode` sets; with `private` False, for
    the output of a restore or an export, the process's umask decides who may read them. The settings of
    S3 are those of this process's environment, see `lakebackup.storage.options`.
    Raises UsageProblem for other schemes.
    """
    from lakebackup.storage.local import LocalStorage

    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalStorage(uri, private=private)
    if scheme == "file":
        return LocalStorage(str(folder_of(rest)), private=private)
    if scheme in ("s3", "s3a"):
        from lakebackup.storage.s3 import S3Storage  # AWS's SDK takes a while to load

        return S3Storage(uri)
    raise unknown_scheme(scheme)
