"""Where bytes are kept: one protocol for a folder and for object storage.

Paths are relative to the storage's root, with `/`, never absolute and never through `..`.
Every backend passes tests/contract/test_storage.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from lakebackup.errors import LakebackupError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One stored object: path below the root, size in bytes, last change in ms since 1970 UTC."""

    path: str
    bytes: int
    modified_ms: int


class AlreadyExists(LakebackupError):
    """A conditional put lost: the object is there already."""

    exit_code = 8


class ObjectWriter(Protocol):
    """An object on its way. Nothing is visible until `commit`; leaving the block without it discards."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def commit(self, path: str, *, if_absent: bool = True, metadata: Mapping[str, str] | None = None) -> None:
        """Publish everything written as `path`, durably, in one step, with `metadata` where the place has it.

        Raises AlreadyExists when `if_absent` and the path is taken; the writer stays usable, so that
        the caller can commit under another path without writing the bytes again.
        """
        ...

    def __enter__(self) -> ObjectWriter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Source(Protocol):
    """What `upload` reads: an open file, or a wrapper that hashes, counts or slows down what is read."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none only at the end."""
        ...


class Storage(Protocol):
    """The operations the project needs of a place. Errors: NotFound, AlreadyExists, EnvironmentProblem."""

    @property
    def uri(self) -> str:
        """The root, as a URI that Spark and `open_storage` understand."""
        ...

    def hurried(self, seconds: float) -> Storage:
        """The same place for small requests that soon count for nothing: each is sent four times at most,
        and no silence of a server lasts longer than `seconds`."""
        ...

    def put(
        self, path: str, data: bytes, *, if_absent: bool = False, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Store a small object, atomically and durably; AlreadyExists when `if_absent` and taken.

        `metadata` goes with the object where the place has such (ASCII, 2 kB in all); a folder ignores it.
        """
        ...

    def writer(self) -> ObjectWriter:
        """Begin a large object whose name is given when it is committed."""
        ...

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

        Atomic and durable as `put`, in bounded memory and without a copy on this machine's disk. An error
        that `stream.read` raises ends it with nothing published. `size_hint` is the expected size in bytes;
        a wrong one does no harm. Object storage needs it for objects of over 10,000 parts.
        """
        ...

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Bytes `[start, start + length)`; NotFound when there is no such object."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A stream over the whole object, for files too large to hold; NotFound as in `get`."""
        ...

    def stat(self, path: str) -> ObjectStat: ...

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectStat]:
        """Objects whose path starts with `prefix` (a folder, ending in `/`, or nothing), sorted by path;
        those behind `after` in this order alone, where it is given."""
        ...

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names directly below the folder `prefix` that hold objects, sorted."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object; one that is already gone is no error."""
        ...


def open_storage(uri: str, *, private: bool = True) -> Storage:
    """The storage at a URI: a folder's path, `file://` or `s3://bucket/prefix` (or `s3a://`).

    What is put into a folder is for its owner alone, or as `[storage] mode` says; with `private` False, for
    what a person gets from a restore or an export, the process's umask says who may read it. The settings of
    S3 are those of this process's environment, see `lakebackup.storage.options`.
    Raises UsageProblem for other schemes.
    """
    from lakebackup.storage.local import LocalStorage

    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalStorage(uri, private=private)
    if scheme == "file":
        place = rest if rest.startswith("/") else f"/{rest.partition('/')[2]}"
        return LocalStorage(place, private=private)
    if scheme in ("s3", "s3a"):
        from lakebackup.storage.s3 import S3Storage  # AWS's SDK takes a while to load

        return S3Storage(uri)
    raise UsageProblem(
        f"{scheme}:// is not a place backups can be stored at.",  # the rest may hold a secret
        hint="Give a folder, a file:// URI, or s3://bucket/prefix.",
    )
