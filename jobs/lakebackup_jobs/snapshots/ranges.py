"""Reads files from an object, one after the other, in few large requests.

Parts that are close to each other are merged into one range, which is read in windows of 8 MiB.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lakebackup.errors import Damaged
from lakebackup.formats.snapshots.compression import decompressed
from lakebackup.storage import Storage

_WINDOW = 8 << 20
# A gap of at most this many bytes between two parts is read too, which is cheaper than another request.
_GAP = 1 << 20


class Ranges:
    """The bytes of some `parts` of an object.

    Each part is (position, bytes); bytes None: to the object's end. The parts come in ascending order.
    """

    def __init__(self, storage: Storage, path: str, parts: Sequence[tuple[int, int | None]]) -> None:
        self._storage, self._path = storage, path
        self._window = memoryview(b"")
        self._window_start = 0
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, size in parts:
            stop = sys.maxsize if size is None else start + size
            if self._starts and start <= self._stops[-1] + _GAP:
                self._stops[-1] = max(self._stops[-1], stop)
            else:
                self._starts.append(start)
                self._stops.append(stop)

    def contents(
        self, start: int, stored_bytes: int | None, codec: str, size: int | None
    ) -> Iterator[memoryview]:
        """Yield the contents of a file of `size` bytes, which is stored as one of the parts.

        Raises what `read` raises, and Damaged when the part is not a file of that size in that codec.
        """
        if codec == "none" and size == stored_bytes:
            yield from self.read(start, stored_bytes)
            return
        if codec != "zstd" or size is None:
            raise Damaged(
                f"the catalog has {codec!r} as the codec of {stored_bytes} bytes at {start} of {self._path}, "
                f"which cannot be a file of {size} bytes"
            )
        try:
            yield from decompressed(self.read(start, stored_bytes), size)
        except ValueError as error:
            raise Damaged(
                f"the zstd frame at {start} of {self._path} is not as it was written: {error}"
            ) from error

    def read(self, start: int, size: int | None) -> Iterator[memoryview]:
        """Yield the bytes of one of the parts, in chunks.

        Raises NotFound (no such object), Damaged (the object ends too early).
        """
        stop = sys.maxsize if size is None else start + size
        while start < stop:
            if not self._window_start <= start < self._window_start + len(self._window):
                end = self._stops[bisect_right(self._starts, start) - 1]
                length = min(_WINDOW, end - start)
                self._window = memoryview(self._storage.get(self._path, start=start, length=length))
                self._window_start = start
                if not self._window:
                    if size is None:
                        return
                    raise Damaged(f"{self._path} ends at byte {start}, before all of it was read")
            chunk = self._window[start - self._window_start : stop - self._window_start]
            start += len(chunk)
            yield chunk
