"""Where a backup of queues ends: the tail of a partition, as blocks of messages without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.plan.topics.backup import RegionState
from lakebackup_jobs.queues.backup.cut import Tails

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from lakebackup_jobs.kafka.memory import Longs

Row = tuple[int, int]  # offset and tid; a watermark's is -1


def region(number: int, end: int) -> RegionState:
    return RegionState("delta", "e", str(number), 0, end, end, None)


def ends(
    monkeypatch: pytest.MonkeyPatch, held: dict[int, list[Row]], first: dict[int, int], later: dict[int, int]
) -> list[int]:
    """Where a backup ends that looked at ends, found the partitions grown, and reads what they hold."""

    def blocks(_: Tails, at: RegionState, start: int, end: int) -> Iterator[tuple[Longs, Longs]]:
        rows = [row for row in held[int(at.region)] if start <= row[0] < end]
        if rows:
            offsets, tids = np.array(rows, np.int64).T
            yield offsets, tids

    monkeypatch.setattr(Tails, "_blocks", blocks)
    before, after = ([region(n, end) for n, end in some.items()] for some in (first, later))
    found = Tails({}, "read_committed", HeaderNames()).settled(before, lambda: after)
    return [one.end for one in found]


def test_what_came_with_an_earlier_tid_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {0: [(0, 1), (1, 4)], 1: [(0, 2), (1, 3), (2, 5)]}
    assert ends(monkeypatch, held, {0: 2, 1: 1}, {0: 2, 1: 3}) == [2, 2]
    # Taking one may make another an earlier one.
    held = {0: [(0, 1), (1, 9), (2, 3)], 1: [(0, 4), (1, 8), (2, 10)]}
    assert ends(monkeypatch, held, {0: 1, 1: 1}, {0: 3, 1: 3}) == [3, 2]


def test_what_a_restore_puts_there_meanwhile_is_another_history(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {0: [(0, 1), (1, 6)], 1: [(0, 2), (1, 3), (2, -1), (3, 4), (4, 5)]}
    assert ends(monkeypatch, held, {0: 2, 1: 1}, {0: 2, 1: 5}) == [2, 2]
