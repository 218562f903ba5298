"""S3 as storage: an object is there whole or not at all, and a conditional put has one winner.

Needs a server with strong consistency and conditional writes (`If-None-Match: *`), as Amazon's is.
"""

from __future__ import annotations

import io
import tempfile
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup.rules.layout import LEASES_FOLDER
from lakebackup.storage import AlreadyExists, ObjectStat, ObjectWriter, Storage
from lakebackup.storage.options import S3Options
from lakebackup.storage.s3_client import client, explained, server_of, status_of
from lakebackup.storage.s3_read import Body
from lakebackup.storage.s3_send import MOST_PARTS, Sending
from lakebackup.storage.uris import s3_uri, split_s3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime

    from lakebackup.storage import Source

_BUFFER = 1 << 17
_IN_MEMORY = 1 << 20  # of an object being written, before it goes to a temporary file: many may be open
_UNLOCKED = f"{LEASES_FOLDER}/"  # an object there counts for seconds, and there are many


class S3Storage(Storage):
    """Objects below a prefix of a bucket. Pickles without its client; every process makes its own."""

    def __init__(self, uri: str, options: S3Options | None = None) -> None:
        self._bucket, self._prefix = split_s3(uri)
        self.options = options or S3Options.from_environment()
        self._bucket_seen = False

    @property
    def uri(self) -> str:
        return s3_uri(self._bucket, self._prefix)

    @property
    def server(self) -> str:
        return server_of(self.options)

    def hurried(self, seconds: float) -> S3Storage:
        settings = self.options
        limits = {
            "connect_timeout": min(settings.connect_timeout, seconds),
            "read_timeout": min(settings.read_timeout, seconds),
            "max_attempts": min(settings.max_attempts, 4),
        }
        return S3Storage(self.uri, settings.model_copy(update=limits))

    def writer(self) -> S3Writer:
        return S3Writer(self)

    def upload(
        self,
        path: str,
        stream: Source,
        *,
        size_hint: int | None = None,
        if_absent: bool = True,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """As of every storage. Less than a part is sent in one request; otherwise parts are sent while the
        stream is read, and up to four of them are in memory."""
        # A tenth more than is needed, since a file may grow while it is read.
        size = max(self.options.part_size, (size_hint or 0) * 11 // (MOST_PARTS * 10))
        parts = _Parts(stream, size)
        with self._explained("write", path):
            sending = Sending(
                self._target(path),
                self.options,
                if_absent=if_absent,
                metadata=metadata,
                locked=not path.startswith(_UNLOCKED),
            )
            first = next(parts, b"")
            if len(first) < size:
                sending.whole(first)
                return parts.size
            if if_absent and self.exists(path):  # before the bytes are sent; it is the end that counts
                raise AlreadyExists(f"{path} is there already, in {self.uri}.")
            every = chain((first,), parts)
            del first  # or it would be held to the end
            sending.parts(every)
        return parts.size

    def put_in_parts(self, path: str, data: bytes) -> None:
        with self._explained("write", path):
            Sending(
                self._target(path), self.options, if_absent=True, locked=not path.startswith(_UNLOCKED)
            ).parts((data,))

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._check_range(path, start, length)
        if length == 0:
            self.stat(path)
            return b""
        with self._body(path, start, length) as body:
            return body.readall()

    def open(self, path: str) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(self._body(path), _BUFFER))

    def stat(self, path: str) -> ObjectStat:
        """As of every storage. S3 has the last change in whole seconds."""
        target = self._target(path)
        try:
            with self._explained("read", path):
                found = client(self.options).head_object(**target)
        except LakebackupError as error:
            if error.__cause__ and 400 <= status_of(error.__cause__) < 500:
                self._ask_why()
            raise
        return ObjectStat(path, found["ContentLength"], _ms(found["LastModified"]))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectStat]:
        """As of every storage, a thousand objects to a request."""
        behind = {"StartAfter": self._prefix + after} if after else {}
        with self._explained("list", prefix):
            for page in self._pages(prefix, **behind):
                for found in page.get("Contents", ()):
                    if not found["Key"].endswith("/"):  # such an empty object stands for a folder elsewhere
                        path = found["Key"].removeprefix(self._prefix)
                        yield ObjectStat(path, found["Size"], _ms(found["LastModified"]))

    def folders(self, prefix: str = "") -> Iterator[str]:
        """As of every storage. An empty object of another program that stands for a folder counts."""
        above = self._prefix + prefix
        with self._explained("list", prefix):
            for page in self._pages(prefix, Delimiter="/"):
                for found in page.get("CommonPrefixes", ()):
                    yield found["Prefix"].removeprefix(above)[:-1]

    def delete(self, path: str) -> None:
        """As of every storage. A bucket with versions keeps the old one."""
        target = self._target(path)
        with self._explained("delete", path):
            client(self.options).delete_object(**target)

    def _pages(self, prefix: str, **arguments: Any) -> Iterator[Any]:
        self._check_prefix(prefix)
        if prefix:
            self._target(prefix[:-1])
        pages = client(self.options).get_paginator("list_objects_v2")
        yield from pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix, **arguments)

    def _target(self, path: str) -> dict[str, Any]:
        self._check(path)
        return {"Bucket": self._bucket, "Key": self._prefix + path}

    def _body(self, path: str, start: int = 0, length: int | None = None) -> Body:
        return Body(self._target(path), self.options, lambda: self._explained("read", path), start, length)

    def _ask_why(self) -> None:
        """An answer to HEAD has no text, not even whether the bucket is missing: make a request that has."""
        if not self._bucket_seen:
            with self._explained("read", ""):
                client(self.options).list_objects_v2(Bucket=self._bucket, MaxKeys=1, Prefix=self._prefix)
            self._bucket_seen = True

    def _explained(self, action: str, path: str) -> AbstractContextManager[None]:
        return explained(action, path, self.uri, self.options)


class S3Writer(ObjectWriter):
    """An object in memory or in a temporary file until its name is given."""

    def __init__(self, storage: S3Storage) -> None:
        self._storage = storage
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by __exit__

    def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise EnvironmentProblem(
                f"Cannot write a temporary file in {tempfile.gettempdir()}: {error}.",
                hint="Free some space there, or name another folder in TMPDIR.",
            ) from error

    def commit(self, path: str, *, if_absent: bool = True, metadata: Mapping[str, str] | None = None) -> None:
        size = self._file.seek(0, io.SEEK_END)
        self._file.seek(0)
        try:
            self._storage.upload(
                path, cast("Source", self._file), size_hint=size, if_absent=if_absent, metadata=metadata
            )
        finally:
            self._file.seek(0, io.SEEK_END)

    def close(self) -> None:
        self._file.close()


class _Parts:
    """A stream cut into parts of `length` bytes, the last one shorter; counts in `size` what was read."""

    def __init__(self, stream: Source, length: int) -> None:
        self._stream, self._length = stream, length
        self.size = 0

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> bytes:
        pieces: list[bytes] = []
        missing = self._length
        while missing and (piece := self._stream.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        if not pieces:
            raise StopIteration
        self.size += self._length - missing
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
