"""Read an object from S3 as a stream. When a connection breaks, reading resumes with a new request."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from botocore.exceptions import (
    ClientError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential
from urllib3.exceptions import HTTPError

from lakebackup.storage.options import S3Options
from lakebackup.storage.s3_client import client, status_of

_CHUNK = 1 << 20
_CONNECTION_ERRORS = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError, HTTPError, OSError)


class _ConnectionBroken(Exception):
    """The connection broke while an object was read. The cause is the original error."""


class Body(io.RawIOBase):
    """An object as a stream of up to `length` bytes from `start`. The constructor makes the first request.

    When the connection breaks, reading resumes at the same position, provided the object did not change.
    `target` has the arguments of `get_object` that name the object. `explain` returns a context that turns
    errors of the SDK into errors of lakebackup.
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
        self._position = start
        self._end = None if length is None else start + length
        self._size = 0
        self._etag = ""
        self._stream: Any = None
        with explain():
            self._connect()

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true. After a move, the next read makes a new request."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read the available bytes into `buffer`, and return how many; 0 at the end."""
        tries = Retrying(
            retry=retry_if_exception_type(_ConnectionBroken),
            stop=stop_after_attempt(self._options.max_attempts),
            wait=wait_random_exponential(0.1, max=5),
            reraise=True,
        )
        with self._explain():
            try:
                count: int = tries(self._read_some, buffer)
            except _ConnectionBroken as broken:
                raise (broken.__cause__ or broken) from None
        self._position += count
        return count

    def readall(self) -> bytes:
        """Read up to the end. The base class would read only 8 KiB at a time."""
        parts = []
        while part := self.read(_CHUNK):
            parts.append(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to another position. The next read makes a request from there."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if origin + offset < 0:
            raise ValueError(f"no such place in a stream: {origin + offset}")
        if origin + offset != self._position:
            self._disconnect()
            self._position = origin + offset
        return self._position

    def tell(self) -> int:
        """The position of the next byte."""
        return self._position

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()
        super().close()

    def _read_some(self, buffer: Any) -> int:
        if self._stream is None:
            self._connect()
        try:
            return int(self._stream.readinto(buffer))
        except _CONNECTION_ERRORS as error:
            self._disconnect()
            raise _ConnectionBroken from error

    def _connect(self) -> None:
        arguments: dict[str, Any] = dict(self._target)
        if self._position or self._end is not None:
            arguments["Range"] = f"bytes={self._position}-{'' if self._end is None else self._end - 1}"
        if self._etag:
            arguments["IfMatch"] = self._etag
        try:
            answer = client(self._options).get_object(**arguments)
        except ClientError as error:
            if status_of(error) != 416:
                raise
            self._stream = io.BytesIO()  # the position is after the end
            return
        self._stream, self._etag = answer["Body"], answer["ETag"]
        total_size = answer.get("ContentRange", "").rpartition("/")[2]
        self._size = int(total_size) if total_size.isdigit() else answer["ContentLength"]

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
