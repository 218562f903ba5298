"""Ids of backups in as few letters as tell them apart; every verb takes them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# An id is 20261121T140512Z-8174d834: to the minute, to the second, or more.
_LENGTHS = (13, 15)


class ShortIds:
    """The short forms of `ids`, of which none begins like another."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = sorted(ids)

    def __call__(self, backup_id: str) -> str:
        at = bisect_left(self._ids, backup_id)
        neighbours = [*self._ids[max(at - 1, 0) : at], *self._ids[at + 1 : at + 2]]
        shared = max((_shared(backup_id, other) for other in neighbours), default=0)
        return backup_id[: next((length for length in _LENGTHS if length > shared), shared + 1)]


def _shared(one: str, other: str) -> int:
    """How many letters two texts have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
