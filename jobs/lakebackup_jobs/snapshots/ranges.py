"""Parts of one object, read one behind the other in few large requests."""

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import TYPE_CHECKING

from lakebackup.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebackup.storage import Storage

_WINDOW = 8 << 20
# Less than this between two parts is read along: cheaper than to ask once more.
_GAP = 1 << 20


class Ranges:
    """The bytes of an object, of which `parts` (position, bytes; None: to its end) are wanted, in order."""

    def __init__(self, storage: Storage, path: str, parts: Sequence[tuple[int, int | None]]) -> None:
        self._storage, self._path = storage, path
        self._window = memoryview(b"")
        self._at = 0
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, size in parts:
            stop = sys.maxsize if size is None else start + size
            if self._starts and start <= self._stops[-1] + _GAP:
                self._stops[-1] = max(self._stops[-1], stop)
            else:
                self._starts.append(start)
                self._stops.append(stop)

    def read(self, start: int, size: int | None) -> Iterator[memoryview]:
        """The bytes of one of the parts. Raises NotFound (no such object), Damaged (it ends before them)."""
        stop = sys.maxsize if size is None else start + size
        while start < stop:
            if not self._at <= start < self._at + len(self._window):
                end = self._stops[bisect_right(self._starts, start) - 1]
                length = min(_WINDOW, end - start)
                self._window = memoryview(self._storage.get(self._path, start=start, length=length))
                self._at = start
                if not self._window:
                    if size is None:
                        return
                    raise Damaged(f"{self._path} ends at byte {start}, before all of it was read")
            chunk = self._window[start - self._at : stop - self._at]
            start += len(chunk)
            yield chunk
