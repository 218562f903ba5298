"""Splits a backup's work into tasks of about the same size. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# A task with fewer offsets costs more to start than to run.
LEAST_OFFSETS_PER_TASK = 250_000
# A task with more offsets loses too much work when it fails.
MOST_OFFSETS_PER_TASK = 20_000_000
# Each piece costs a request and a file, however few offsets it has: some 10 ms.
MOST_PIECES_PER_TASK = 100


class Piece(NamedTuple):
    """Offsets `[start, end)` of the range with the index `of`; `rank` counts the pieces of a range from 0."""

    of: int
    start: int
    end: int
    rank: int


def split(
    ranges: Sequence[tuple[int, int]], parallelism: int, *, one_task: int = 0
) -> tuple[tuple[Piece, ...], ...]:
    """The pieces that each task reads, in the order of the ranges `[start, end)`.

    Empty ranges have no pieces. `one_task`: up to this many offsets in total are a single task.
    """
    total = sum(end - start for start, end in ranges)
    # Twice as many tasks as cores, so that a slow one does not leave the others idle for long.
    size = min(max(-(-total // (2 * parallelism)), LEAST_OFFSETS_PER_TASK), MOST_OFFSETS_PER_TASK)
    if total <= one_task:
        size = max(total, 1)
    tasks: list[list[Piece]] = []
    room = 0
    for range_number, (start, end) in enumerate(ranges):
        length = end - start
        # A remainder of less than half a task is not worth a file of its own.
        count = max(1, (length + size // 2) // size) if length else 0
        for rank in range(count):
            piece = Piece(
                range_number, start + length * rank // count, start + length * (rank + 1) // count, rank
            )
            is_full = bool(tasks) and len(tasks[-1]) == MOST_PIECES_PER_TASK and total > one_task
            if not tasks or is_full or piece.end - piece.start > room:
                tasks.append([])
                room = size
            tasks[-1].append(piece)
            room -= piece.end - piece.start
    return tuple(map(tuple, tasks))


def share_out(sizes: Sequence[int], parallelism: int, least: int) -> tuple[tuple[int, ...], ...]:
    """Distribute whole items over tasks that have about the same amount of work.

    `sizes`: the size of each item. Returns the indexes of each task's items. There are at most `parallelism`
    tasks, and fewer when they would have less than `least` each. Items of size 0 belong to no task.
    """
    indexes = sorted((n for n, size in enumerate(sizes) if size), key=lambda n: -sizes[n])
    count = min(parallelism, len(indexes), max(1, sum(sizes) // least))
    loads: list[list[int]] = [[] for _ in range(count)]
    for number in indexes:
        min(loads, key=lambda load: sum(sizes[n] for n in load)).append(number)
    return tuple(map(tuple, loads))
