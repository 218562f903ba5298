"""S3 as storage. Only complete objects are visible, and only one of several conditional puts succeeds.

It needs a server with strong consistency and conditional writes (`If-None-Match: *`), such as Amazon's.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import chain
from typing import Any, BinaryIO, cast

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup.rules.layout import LEASES_FOLDER
from lakebackup.storage.interface import AlreadyExists, ObjectStat, ObjectWriter, Source, Storage
from lakebackup.storage.options import S3Options
from lakebackup.storage.s3_client import client, explained, server_of, status_of
from lakebackup.storage.s3_read import Body
from lakebackup.storage.s3_send import MOST_PARTS, Sending
from lakebackup.storage.uris import s3_uri, split_s3

_READ_BUFFER_BYTES = 1 << 17
_MAX_MEMORY_BYTES = 1 << 20  # an object being written is in memory up to this size, then in a temporary file
_UNLOCKED_PREFIX = (
    f"{LEASES_FOLDER}/"  # without Object Lock: leases count only for seconds, and there are many
)


class S3Storage(Storage):
    """Objects below a prefix of a bucket. It is pickled without its client; every process creates its own."""

    def __init__(self, uri: str, options: S3Options | None = None) -> None:
        self._bucket, self._prefix = split_s3(uri)
        self.options = options or S3Options.from_environment()
        self._bucket_exists = False

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
        """As in every storage. An object smaller than a part is sent in one request. A larger one is sent in
        parts while the stream is read, and memory holds up to four parts."""
        # 10% more than needed, since a file may grow while it is read.
        part_size = max(self.options.part_size, (size_hint or 0) * 11 // (MOST_PARTS * 10))
        parts = _Parts(stream, part_size)
        with self._translate_errors("write", path):
            sending = Sending(
                self._target(path),
                self.options,
                if_absent=if_absent,
                metadata=metadata,
                locked=not path.startswith(_UNLOCKED_PREFIX),
            )
            first_part = next(parts, b"")
            if len(first_part) < part_size:
                sending.send_whole(first_part)
                return parts.size
            if if_absent and self.exists(path):  # fails early; the final request decides
                raise AlreadyExists(f"{path} is there already, in {self.uri}.")
            all_parts = chain((first_part,), parts)
            del first_part  # or memory would hold the first part until the end
            sending.parts(all_parts)
        return parts.size

    def put_in_parts(self, path: str, data: bytes) -> None:
        with self._translate_errors("write", path):
            Sending(
                self._target(path), self.options, if_absent=True, locked=not path.startswith(_UNLOCKED_PREFIX)
            ).parts((data,))

    def get(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._check_range(path, start, length)
        if length == 0:
            self.stat(path)
            return b""
        with self._body(path, start, length) as body:
            return body.readall()

    def open(self, path: str) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(self._body(path), _READ_BUFFER_BYTES))

    def stat(self, path: str) -> ObjectStat:
        """As in every storage. S3 returns the last change in whole seconds."""
        target = self._target(path)
        try:
            with self._translate_errors("read", path):
                answer = client(self.options).head_object(**target)
        except LakebackupError as error:
            if error.__cause__ and 400 <= status_of(error.__cause__) < 500:
                self._require_bucket()
            raise
        return ObjectStat(path, answer["ContentLength"], _ms(answer["LastModified"]))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectStat]:
        """As in every storage, with a request per thousand objects."""
        arguments = {"StartAfter": self._prefix + start_after} if start_after else {}
        with self._translate_errors("list", prefix):
            for page in self._pages(prefix, **arguments):
                yield from self._objects(page)

    def children(self, prefix: str = "") -> Iterator[tuple[str, ObjectStat | None]]:
        """As in every storage, with a request per thousand names."""
        with self._translate_errors("list", prefix):
            for page in self._pages(prefix, Delimiter="/"):
                for entry in page.get("CommonPrefixes", ()):
                    yield entry["Prefix"].removeprefix(self._prefix + prefix)[:-1], None
                for stat in self._objects(page):
                    yield stat.path.removeprefix(prefix), stat

    def _objects(self, page: Mapping[str, Any]) -> Iterator[ObjectStat]:
        for entry in page.get("Contents", ()):
            if not entry["Key"].endswith("/"):  # in other programs, an empty object that stands for a folder
                path = entry["Key"].removeprefix(self._prefix)
                yield ObjectStat(path, entry["Size"], _ms(entry["LastModified"]))

    def folders(self, prefix: str = "") -> Iterator[str]:
        """As in every storage. An empty object with which another program marks a folder counts too."""
        return (name for name, stat in self.children(prefix) if stat is None)

    def delete(self, path: str) -> None:
        """As in every storage. A bucket with versioning keeps the old version."""
        target = self._target(path)
        with self._translate_errors("delete", path):
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
        return Body(
            self._target(path), self.options, lambda: self._translate_errors("read", path), start, length
        )

    def _require_bucket(self) -> None:
        """Raise the exact error if the bucket cannot be used, by a request whose answer has an error text.

        Answers to HEAD have none, and do not even tell whether the bucket is missing.
        """
        if not self._bucket_exists:
            with self._translate_errors("list", ""):
                client(self.options).list_objects_v2(Bucket=self._bucket, MaxKeys=1, Prefix=self._prefix)
            self._bucket_exists = True

    def _translate_errors(self, action: str, path: str) -> AbstractContextManager[None]:
        return explained(action, path, self.uri, self.options)


class S3Writer(ObjectWriter):
    """An object in memory or in a temporary file until its path is given."""

    def __init__(self, storage: S3Storage) -> None:
        self._storage = storage
        self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115 - closed by __exit__

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
    """Splits a stream into parts of `length` bytes, the last one shorter. `size` counts the bytes read."""

    def __init__(self, stream: Source, length: int) -> None:
        self._stream, self._length = stream, length
        self.size = 0

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> bytes:
        pieces: list[bytes] = []
        missing_bytes = self._length
        while missing_bytes and (piece := self._stream.read(missing_bytes)):
            pieces.append(piece)
            missing_bytes -= len(piece)
        if not pieces:
            raise StopIteration
        self.size += self._length - missing_bytes
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
