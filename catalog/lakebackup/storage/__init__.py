"""Where bytes are kept: one protocol for a folder and for object storage.

Paths are relative to the storage's root, with `/`, never absolute and never through `..`.
Every backend passes tests/contract/test_storage.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from lakebackup.errors import LakebackupError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterator
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

    def commit(self, path: str, *, if_absent: bool = True) -> None:
        """Publish everything written as `path`, durably, in one step.

        Raises AlreadyExists when `if_absent` and the path is taken; the writer stays usable, so that
        the caller can commit under another path without writing the bytes again.
        """
        ...

    def __enter__(self) -> ObjectWriter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Storage(Protocol):
    """The operations the project needs of a place. Errors: NotFound, AlreadyExists, EnvironmentProblem."""

    @property
    def uri(self) -> str:
        """The root, as a URI that Spark and `open_storage` understand."""
        ...

    def put(self, path: str, data: bytes, *, if_absent: bool = False) -> None:
        """Store a small object, atomically and durably; AlreadyExists when `if_absent` and taken."""
        ...

    def writer(self) -> ObjectWriter:
        """Begin a large object whose name is given when it is committed."""
        ...

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Bytes `[start, start + length)`; NotFound when there is no such object."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A stream over the whole object, for files too large to hold; NotFound as in `get`."""
        ...

    def stat(self, path: str) -> ObjectStat: ...

    def list(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Objects whose path starts with `prefix` (a folder, ending in `/`, or nothing), sorted by path."""
        ...

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names directly below the folder `prefix` that hold objects, sorted."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object; one that is already gone is no error."""
        ...


def open_storage(uri: str) -> Storage:
    """The storage at a URI: a folder's path or `file://` URI. Raises UsageProblem for other schemes."""
    from lakebackup.storage.local import LocalStorage

    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalStorage(uri)
    if scheme == "file":
        return LocalStorage(rest if rest.startswith("/") else f"/{rest.partition('/')[2]}")
    raise UsageProblem(
        f"{scheme}:// is not a place backups can be stored at (in {uri!r}).",
        hint="Give a folder, or a file:// URI.",
    )
