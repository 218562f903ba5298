from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.plan.splits import (
    LEAST_OFFSETS_PER_TASK,
    MOST_OFFSETS_PER_TASK,
    MOST_PIECES_PER_TASK,
    Piece,
    share_out,
    split,
)

SIZES = st.integers(0, 10**6) | st.integers(0, 90_000_000)
RANGES = st.lists(st.tuples(st.integers(0, 10**7), SIZES), max_size=40)


@given(RANGES, st.integers(1, 64), st.sampled_from([0, 2_000_000]))
def test_every_offset_is_read_once_by_tasks_of_bounded_size(
    ranges: list[tuple[int, int]], parallelism: int, one_task: int
) -> None:
    sizes = [size for _, size in ranges]
    tasks = split([(start, start + size) for start, size in ranges], parallelism, one_task=one_task)
    pieces_by_range: dict[int, list[Piece]] = {}
    for piece in (piece for task in tasks for piece in task):
        pieces_by_range.setdefault(piece.of, []).append(piece)
    for number, (start, size) in enumerate(ranges):
        pieces = pieces_by_range.get(number, [])
        assert [piece.rank for piece in pieces] == list(range(len(pieces)))
        assert all(piece.start < piece.end for piece in pieces)
        assert all(a.end == b.start for a, b in pairwise(pieces))
        assert [pieces[0].start, pieces[-1].end] == [start, start + size] if size else not pieces
    if sum(sizes) <= one_task:
        assert len(tasks) == (1 if sum(sizes) else 0)
        return
    size = min(max(LEAST_OFFSETS_PER_TASK, sum(sizes) // (2 * parallelism) + 1), MOST_OFFSETS_PER_TASK)
    assert all(0 < sum(piece.end - piece.start for piece in task) <= 1.5 * size + 1 for task in tasks)
    assert len(tasks) <= max(2 * parallelism, sum(sizes) // LEAST_OFFSETS_PER_TASK) + len(sizes)


def test_many_small_ranges_are_several_tasks() -> None:
    ranges = [(0, 2)] * (2 * MOST_PIECES_PER_TASK + 1)
    assert [len(task) for task in split(ranges, 2)] == [MOST_PIECES_PER_TASK, MOST_PIECES_PER_TASK, 1]
    assert len(split(ranges, 2, one_task=1_000)) == 1


@pytest.mark.parametrize(
    ("sizes", "parallelism", "shares"),
    [
        ([90_000, 40_000, 30_000, 0, 20_000], 2, [{0}, {1, 2, 4}]),
        ([0], 2, []),
        ([20_000], 8, [{0}]),
        ([5, 5, 5], 8, [{0, 1, 2}]),
    ],
)
def test_items_are_shared_out_undivided_in_about_equal_shares(
    sizes: list[int], parallelism: int, shares: list[set[int]]
) -> None:
    assert list(map(set, share_out(sizes, parallelism, 20_000))) == shares
