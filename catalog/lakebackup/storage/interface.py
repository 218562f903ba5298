"""One interface to store objects in a folder and in object storage.

Paths are relative to the storage's root and use `/`. They are never absolute and never contain `..`. Every
backend passes tests/contract/test_storage.py.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Protocol, Self, cast

from lakebackup.errors import LakebackupError, NotFound, UsageProblem

#: The most bytes to read of an object that should be small. A larger one is damaged: anyone could write it.
A_FEW = 1 << 20
#: The most bytes to read of an object that has a line for each file or backup.
MANY = 1 << 28
_CONCURRENT_WRITES = 8


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One stored object: path relative to the root, size in bytes, last change in ms since 1970 UTC."""

    path: str
    bytes: int
    modified_ms: int


class AlreadyExists(LakebackupError):
    """A conditional put failed because the object exists already."""

    exit_code = 8


class ObjectWriter(ABC):
    """An object that is being written. It becomes visible at `commit`. Without it, the end of the block
    discards the object."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`. Raises EnvironmentProblem when the disk is full."""

    @abstractmethod
    def commit(self, path: str, *, if_absent: bool = True, metadata: Mapping[str, str] | None = None) -> None:
        """Publish everything written as `path`, durably and atomically. `metadata` is as in `upload`.

        Raises AlreadyExists if `if_absent` is set and the object exists. The writer stays usable, so the
        caller can commit to another path without writing the bytes again.
        """

    @abstractmethod
    def close(self) -> None:
        """Discard the object if it was not committed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Source(Protocol):
    """A stream that `upload` reads: an open file, or a wrapper that hashes, counts or limits the bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`. Empty only at the end."""
        ...


class Storage(ABC):
    """A store of objects below a root. Methods raise NotFound, AlreadyExists and EnvironmentProblem."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root as a URI that Spark and `open_storage` accept, without a slash at the end."""

    @property
    @abstractmethod
    def server(self) -> str:
        """The name of the server or file system, for messages. Storages of one name behave alike."""

    def hurried(self, seconds: float) -> Storage:
        """The same storage with short timeouts, for small requests whose answers are soon worthless.

        It sends each request at most four times, and waits at most `seconds` for a silent server.
        """
        del seconds
        return self

    def put(
        self, path: str, data: bytes, *, if_absent: bool = False, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Store a small object, as `upload` does."""
        self.upload(path, io.BytesIO(data), size_hint=len(data), if_absent=if_absent, metadata=metadata)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Store small objects, each as `put` does, but side by side. They replace objects of their names."""
        with ThreadPoolExecutor(_CONCURRENT_WRITES) as pool:
            for _ in pool.map(self.put, objects.keys(), objects.values()):
                pass  # this raises the error of a put

    def put_in_parts(self, path: str, data: bytes) -> None:
        """Store a small object if it is absent, but in parts, as `upload` stores large objects."""
        self.put(path, data, if_absent=True)

    @abstractmethod
    def writer(self) -> ObjectWriter:
        """Begin an object whose path is given at its commit."""

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
        """Store the whole `stream` as `path` and return the number of bytes.

        This is atomic and durable. It needs bounded memory and no copy on this machine's disk. If
        `stream.read` raises an error, nothing is published. Raises AlreadyExists if `if_absent` is set and
        the object exists. `size_hint` is the expected size in bytes; a wrong one does no harm. Object storage
        needs it for objects of over 10,000 parts. `metadata` (ASCII, 2 kB in all) is stored with the object;
        a folder ignores it.
        """

    @abstractmethod
    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read the bytes `[start, start + length)`, or fewer at the object's end. Raises NotFound."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """A seekable stream over the object, for one that is too large for memory. Raises NotFound."""

    @abstractmethod
    def stat(self, path: str) -> ObjectStat:
        """The size and last change of an object. Raises NotFound."""

    def exists(self, path: str) -> bool:
        """Whether the object exists."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def sha256(self, path: str) -> str:
        """The SHA-256 of an object in lower hex. Raises NotFound."""
        with self.open(path) as stream:
            return hashlib.file_digest(cast("io.BufferedReader", stream), "sha256").hexdigest()

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectStat]:
        """Yield the objects whose path begins with `prefix`, sorted by path; only paths greater than
        `start_after`.

        `prefix` is a folder, ending in `/`, or empty.
        """

    @abstractmethod
    def children(self, prefix: str = "") -> Iterator[tuple[str, ObjectStat | None]]:
        """Yield the names directly below the folder `prefix`, in any order: with its stat for an object, with
        None for a folder, which may contain no objects."""

    @abstractmethod
    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the folders directly below the folder `prefix` that contain objects, sorted."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete an object. It is no error if it does not exist."""

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


class EncryptedUri(str):
    """The URI of a storage whose names and metadata are encrypted, in its normal form.

    It has the key, which is pickled with it. Its text shows none.
    """

    def open(self, storage: Storage) -> Storage:
        """Return the storage, given the one at the same URI that does not decrypt."""
        raise NotImplementedError
