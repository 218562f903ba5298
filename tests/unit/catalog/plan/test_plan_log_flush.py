from __future__ import annotations

import pytest

from lakebackup.errors import Refused
from lakebackup.plan.logs import flush as log_flush
from lakebackup.plan.logs.flush import Newest
from lakebackup.plan.partitions import BackupRows, RegionState


def region(number: int, low: int, end: int, epoch: str = "e1") -> RegionState:
    return RegionState("feed", epoch, str(number), low, end, end, None)


NEWEST = Newest("b1", 1, "b1", 0, 1, 0, 7)


ROWS = BackupRows("b2", "prod", 99)
POSITIONS = {("feed", "e1", "0"): 10, ("feed", "e1", "1"): 20}


def gaps(regions: list[RegionState], *, allowed: bool = True) -> list[tuple[str, str, int, int | None]]:
    gap_rows = log_flush.gaps(ROWS, regions, POSITIONS, NEWEST, allowed=allowed)
    return [(g.reason, g.epoch, g.from_position, g.to_position) for g in gap_rows]


@pytest.mark.parametrize(
    ("last", "due"),
    [
        (None, 0.0),
        ((1000, 1010), 190.0),
        ((1000, 1400), 50.0),  # a flush takes longer than it may, and half of the time is left to other tasks
        ((1000, 995), 200.0),  # the clock went back meanwhile
        ((500, 510), 0.0),
        ((90_000, 90_010), 300.0),  # the clock went back a day
    ],
)
def test_a_flush_is_due_early_enough_to_end_in_time(last: tuple[int, int] | None, due: float) -> None:
    micros = last and (last[0] * 1_000_000, last[1] * 1_000_000)
    assert log_flush.due_in(micros, 300, 1100) == due


def test_a_backlog_is_read_in_steps_of_the_same_share_of_each_partition() -> None:
    regions = [region(0, 0, 110), region(1, 0, 20), region(2, 0, 300)]
    rows = log_flush.positions(ROWS, regions, POSITIONS, most=100)
    assert [(r.region, r.start_position, r.end_position) for r in rows] == [("0", 10, 35), ("2", 0, 75)]
    all_rows = log_flush.positions(ROWS, regions, POSITIONS, most=10_000)
    assert [(r.region, r.start_position, r.end_position) for r in all_rows] == [("0", 10, 110), ("2", 0, 300)]


@pytest.mark.parametrize(
    ("regions", "most", "rows"),
    [
        pytest.param(
            [(0, 0, 11), (1, 0, 5000)], 1, [("0", 10, 11), ("1", 20, 21)], id="a step is never empty"
        ),
        pytest.param([(0, 0, 10), (5, 3, 3)], 10, [("5", 3, 3)], id="an empty one that nobody has read"),
        pytest.param([(0, 15, 30)], 100, [("0", 15, 30)], id="on after a gap"),
    ],
)
def test_the_ranges_of_partitions_that_are_read(
    regions: list[tuple[int, int, int]], most: int, rows: list[tuple[str, int, int]]
) -> None:
    positions = log_flush.positions(ROWS, [region(*bounds) for bounds in regions], POSITIONS, most=most)
    assert [r.region for r in positions] == [name for name, _, _ in rows]
    for row, (_, start, end) in zip(positions, rows, strict=True):
        assert row.start_position == start
        assert row.end_position >= end


def test_records_deleted_unread_are_a_gap_and_refused_unless_allowed() -> None:
    purged = [region(0, 15, 30), region(1, 20, 30)]
    assert gaps(purged) == [("purged", "e1", 10, 15)]
    assert gaps([region(0, 10, 30), region(1, 20, 30)]) == []
    assert gaps([region(0, 11, 30), region(1, 20, 30)]) == [("purged", "e1", 10, 11)]
    new_regions = [region(2, 0, 9), region(3, 7, 9), region(4, 7, 7)]
    assert gaps(new_regions) == [("purged", "e1", 0, 7)] * 2
    # A new task begins with the records that the partitions have.
    assert log_flush.gaps(ROWS, new_regions, {}, None, allowed=False) == ()
    shorter = [region(0, 0, 8), region(1, 0, 20)]
    assert gaps(shorter) == [("recreated", "e1", 8, None)]
    recreated = [region(0, 0, 3, "e2"), region(1, 0, 40)]
    assert gaps(recreated) == [("recreated", "e1", 10, None)]
    with pytest.raises(Refused, match="partition 0, from offset 10 on were deleted before they were read"):
        gaps(purged, allowed=False)
    for regions in (recreated, shorter):
        with pytest.raises(Refused, match="recreated or truncated"):
            gaps(regions, allowed=False)


def test_a_truncated_partition_is_a_gap_and_read_again_from_the_cut() -> None:
    grown, cuts = [region(0, 0, 30), region(1, 0, 20)], {("feed", "e1", "0"): 6}
    gap_rows = log_flush.gaps(ROWS, grown, POSITIONS, NEWEST, allowed=True, cuts=cuts)
    assert [(g.reason, g.region, g.from_position, g.to_position) for g in gap_rows] == [
        ("recreated", "0", 6, None)
    ]
    with pytest.raises(Refused, match="partition 0, from offset 6 on were lost when the topic"):
        log_flush.gaps(ROWS, grown, POSITIONS, NEWEST, allowed=False, cuts=cuts)
    for end in (30, 6):  # at 6 there is nothing to read yet, and the position is recorded all the same
        rows = log_flush.positions(ROWS, [region(0, 0, end)], {**POSITIONS, **cuts}, 100, cuts)
        assert [(r.region, r.start_position, r.end_position) for r in rows] == [("0", 6, end)]


def test_the_start_of_a_new_log() -> None:
    complete, purged = [region(0, 0, 9)], [region(0, 0, 9), region(1, 4, 9)]
    assert log_flush.first_floor(complete, None, [], allowed=False) == 0
    assert log_flush.first_floor(purged, None, [], allowed=False) is None
    assert log_flush.first_floor(purged, 50, [], allowed=False) == 50
    assert log_flush.first_floor(purged, 50, ["topic feed, partition 1"], allowed=True) == 50
    with pytest.raises(Refused, match="may have come after 50: topic feed, partition 1 starts later"):
        log_flush.first_floor(purged, 50, ["topic feed, partition 1"], allowed=False)


def test_the_milliseconds_of_a_timestamp() -> None:
    ms = 1_795_000_000_000
    assert log_flush.physical_ms(ms << 18 | 5, "tso") == ms
    assert log_flush.physical_ms(ms, "ms") == ms
