"""Shortens ids of backups to the fewest characters that tell them apart. Every verb takes short ids.

An id is compared with its two neighbours in sorted order: no other id shares a longer prefix with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import takewhile

# Lengths to cut an id such as 20261121T140512Z-8174d834 at: after the minute, after the second.
_LENGTHS = (13, 15)


class ShortIds:
    """Maps an id to its short form, with which no other of the `ids` begins."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = sorted(ids)

    def __call__(self, backup_id: str) -> str:
        index = bisect_left(self._ids, backup_id)
        neighbours = [*self._ids[max(index - 1, 0) : index], *self._ids[index + 1 : index + 2]]
        shared_length = max((_shared_length(backup_id, neighbour) for neighbour in neighbours), default=0)
        return backup_id[: next((length for length in _LENGTHS if length > shared_length), shared_length + 1)]


def _shared_length(a: str, b: str) -> int:
    """The length of the longest common prefix of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
