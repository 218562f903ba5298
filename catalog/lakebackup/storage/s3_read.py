"""Reading an object over connections that may break."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from botocore.exceptions import (
    ClientError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential
from urllib3.exceptions import HTTPError

from lakebackup.storage.s3_client import client, status_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from lakebackup.storage.options import S3Options

_CHUNK = 1 << 20
_BROKEN = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError, HTTPError, OSError)


class _Cut(Exception):
    """The connection broke in the middle; the cause is the reason."""


class Body(io.RawIOBase):
    """An object as a stream, from `start` for `length` bytes; the first request is made at once.

    When the connection breaks, reading resumes there, as long as the object is the same.
    """

    def __init__(
        self,
        target: dict[str, Any],
        options: S3Options,
        explain: Callable[[], AbstractContextManager[None]],
        start: int = 0,
        length: int | None = None,
    ) -> None:
        super().__init__()
        self._target = target
        self._options = options
        self._explain = explain
        self._at = start
        self._stop = None if length is None else start + length
        self._size = 0
        self._tag = ""
        self._stream: Any = None
        with explain():
            self._connect()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is; a move costs a request."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer` as far as bytes have come; 0 at the end."""
        tries = Retrying(
            retry=retry_if_exception_type(_Cut),
            stop=stop_after_attempt(self._options.max_attempts),
            wait=wait_random_exponential(0.1, max=5),
            reraise=True,
        )
        with self._explain():
            try:
                count: int = tries(self._read_some, buffer)
            except _Cut as cut:
                raise (cut.__cause__ or cut) from None
        self._at += count
        return count

    def readall(self) -> bytes:
        """The rest. The base class would read 8 KiB at a time."""
        parts = []
        while part := self.read(_CHUNK):
            parts.append(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move; the next read asks from there."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"no such place in a stream: {base + offset}")
        if base + offset != self._at:
            self._drop()
            self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Where the next byte comes from."""
        return self._at

    def close(self) -> None:
        """Close the connection."""
        self._drop()
        super().close()

    def _read_some(self, buffer: Any) -> int:
        if self._stream is None:
            self._connect()
        try:
            return int(self._stream.readinto(buffer))
        except _BROKEN as error:
            self._drop()
            raise _Cut from error

    def _connect(self) -> None:
        wanted: dict[str, Any] = dict(self._target)
        if self._at or self._stop is not None:
            wanted["Range"] = f"bytes={self._at}-{'' if self._stop is None else self._stop - 1}"
        if self._tag:
            wanted["IfMatch"] = self._tag
        try:
            answer = client(self._options).get_object(**wanted)
        except ClientError as error:
            if status_of(error) != 416:
                raise
            self._stream = io.BytesIO()  # behind the end
            return
        self._stream, self._tag = answer["Body"], answer["ETag"]
        whole = answer.get("ContentRange", "").rpartition("/")[2]
        self._size = int(whole) if whole.isdigit() else answer["ContentLength"]

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
