"""Lists of files that the tasks of a merge, a compaction or an export read: JSON lines, one object a task.

They are written in the backup's folder before the tasks start, so an interrupted run is resumed with them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakebackup.storage import Storage

T = TypeVar("T")


def split_path(folder: str, number: int) -> str:
    """The path of a split, below the folder of a restore or backup."""
    return f"{folder}plan/{number:06d}.jsonl"


def batched(items: Iterable[T], *limits: tuple[Callable[[T], int], int]) -> Iterator[list[T]]:
    """Group items into lists. Each limit is a function for an item's weight, and the sum of weights at which
    a list is full."""
    batch: list[T] = []
    sums = [0 for _ in limits]
    for item in items:
        batch.append(item)
        sums = [total + weight(item) for total, (weight, _) in zip(sums, limits, strict=True)]
        if any(total >= limit for total, (_, limit) in zip(sums, limits, strict=True)):
            yield batch
            batch, sums = [], [0 for _ in limits]
    if batch:
        yield batch


def write_lines(storage: Storage, path: str, rows: Iterable[Any]) -> None:
    """Write rows as JSON lines. Replaces an older object."""
    with storage.writer() as writer:
        for row in rows:
            writer.write(f"{json.dumps(row)}\n".encode())
        writer.commit(path, if_absent=False)


def read_lines(storage: Storage, path: str) -> Iterator[Any]:
    """The rows that `write_lines` wrote. Raises NotFound."""
    with storage.open(path) as stream:
        yield from map(json.loads, stream)
