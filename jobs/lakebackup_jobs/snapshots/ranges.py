"""Reads files from an object, one after the other, in few large requests.

Parts that are close to each other are merged into one range, which is read in windows of 8 MiB. Parts of an
encrypted object are parts of its content.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lakebackup.encryption.objects import Keyring
from lakebackup.encryption.segments import SEGMENT_BYTES, SealedObject
from lakebackup.errors import Damaged
from lakebackup.formats.snapshots.compression import decompressed
from lakebackup.storage import Storage

_WINDOW = 8 << 20
# A gap of at most this many bytes between two parts is read too, which is cheaper than another request.
_GAP = 1 << 20


class Ranges:
    """The bytes of some `parts` of an object.

    Each part is (position, bytes); bytes None: to the object's end. The parts come in ascending order.
    `keys`: the data keys that open the object; None: it is not encrypted.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        parts: Sequence[tuple[int, int | None]],
        keys: Keyring | None = None,
    ) -> None:
        self._storage, self._path, self._keys = storage, path, keys
        self._content: SealedObject | None = None
        self._window = memoryview(b"")
        self._window_start = 0
        # What follows the window and was read with it, but is not decrypted yet.
        self._pieces: Iterator[memoryview] = iter(())
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

        Raises NotFound (no such object), Damaged (the object ends too early, or does not decrypt).
        """
        stop = sys.maxsize if size is None else start + size
        while start < stop:
            if not self._window_start <= start < self._window_start + len(self._window):
                self._move(start)
                if not self._window:
                    if size is None:
                        return
                    raise Damaged(f"{self._path} ends at byte {start}, before all of it was read")
            chunk = self._window[start - self._window_start : stop - self._window_start]
            start += len(chunk)
            yield chunk

    def _move(self, start: int) -> None:
        """Move the window to bytes from `start` on; at the end of the object it is empty."""
        if start < self._window_start:  # a part is read again
            self._pieces = iter(())
        for piece in self._pieces:
            self._window_start += len(self._window)
            self._window = piece
            if start < self._window_start + len(piece):
                return
        end = self._stops[bisect_right(self._starts, start) - 1]
        length = min(_WINDOW, end - start)
        self._window_start = start
        if self._keys is None:
            self._window = memoryview(self._storage.get(self._path, start=start, length=length))
            return
        if self._content is None:
            self._content = self._open(self._keys)
        self._pieces = self._content.pieces(start, length)
        self._window = next(self._pieces, memoryview(b""))

    def _open(self, keys: Keyring) -> SealedObject:
        """Open the encrypted object. Its first bytes are read at once: they hold all of a small file."""
        storage, path = self._storage, self._path
        size = storage.stat(path).bytes
        beginning = storage.get(path, start=0, length=SEGMENT_BYTES)

        def read_range(start: int, length: int) -> bytes:
            if start + length <= len(beginning):
                return beginning[start : start + length]
            return storage.get(path, start=start, length=length)

        return keys.open(path, "files", (path,), size, read_range)
