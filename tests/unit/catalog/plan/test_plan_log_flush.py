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
KNOWN = {("feed", "e1", "0"): 10, ("feed", "e1", "1"): 20}


def gaps(regions: list[RegionState], *, allowed: bool = True) -> list[tuple[str, str, int, int | None]]:
    found = log_flush.gaps(ROWS, regions, KNOWN, NEWEST, allowed=allowed)
    return [(g.reason, g.epoch, g.from_position, g.to_position) for g in found]


@pytest.mark.parametrize(
    ("last", "due"),
    [
        (None, 0.0),
        ((1000, 1010), 190.0),
        ((1000, 1400), 50.0),  # it takes longer than it may: half the time is left to others
        ((1000, 995), 200.0),  # the clock went back meanwhile
        ((500, 510), 0.0),
        ((90_000, 90_010), 300.0),  # the clock went back a day
    ],
)
def test_a_flush_is_due_so_that_it_is_done_in_time(last: tuple[int, int] | None, due: float) -> None:
    micros = last and (last[0] * 1_000_000, last[1] * 1_000_000)
    assert log_flush.due_in(micros, 300, 1100) == due


def test_a_backlog_is_read_in_steps_of_the_same_part_of_each_partition() -> None:
    regions = [region(0, 0, 110), region(1, 0, 20), region(2, 0, 300)]
    rows = log_flush.positions(ROWS, regions, KNOWN, most=100)
    assert [(r.region, r.start_position, r.end_position) for r in rows] == [("0", 10, 35), ("2", 0, 75)]
    rest = log_flush.positions(ROWS, regions, KNOWN, most=10_000)
    assert [(r.region, r.start_position, r.end_position) for r in rest] == [("0", 10, 110), ("2", 0, 300)]


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
def test_where_partitions_are_read(
    regions: list[tuple[int, int, int]], most: int, rows: list[tuple[str, int, int]]
) -> None:
    found = log_flush.positions(ROWS, [region(*one) for one in regions], KNOWN, most=most)
    assert [r.region for r in found] == [name for name, _, _ in rows]
    for row, (_, start, end) in zip(found, rows, strict=True):
        assert row.start_position == start
        assert row.end_position >= end


def test_what_was_deleted_unread_is_a_gap_and_refused_unless_it_is_allowed() -> None:
    purged = [region(0, 15, 30), region(1, 20, 30)]
    assert gaps(purged) == [("purged", "e1", 10, 15)]
    assert gaps([region(0, 10, 30), region(1, 20, 30)]) == []
    assert gaps([region(0, 11, 30), region(1, 20, 30)]) == [("purged", "e1", 10, 11)]
    met = [region(2, 0, 9), region(3, 7, 9), region(4, 7, 7)]
    assert gaps(met) == [("purged", "e1", 0, 7)] * 2
    # A task begins with what is there.
    assert log_flush.gaps(ROWS, met, {}, None, allowed=False) == ()
    shorter = [region(0, 0, 8), region(1, 0, 20)]
    assert gaps(shorter) == [("recreated", "e1", 8, None)]
    again = [region(0, 0, 3, "e2"), region(1, 0, 40)]
    assert gaps(again) == [("recreated", "e1", 10, None)]
    with pytest.raises(Refused, match="partition 0, from offset 10 on were deleted before they were read"):
        gaps(purged, allowed=False)
    for lost in (again, shorter):
        with pytest.raises(Refused, match="recreated or truncated"):
            gaps(lost, allowed=False)


def test_what_was_cut_back_is_read_again_from_there_and_a_gap_even_when_it_has_grown() -> None:
    grown, cuts = [region(0, 0, 30), region(1, 0, 20)], {("feed", "e1", "0"): 6}
    found = log_flush.gaps(ROWS, grown, KNOWN, NEWEST, allowed=True, cuts=cuts)
    assert [(g.reason, g.region, g.from_position, g.to_position) for g in found] == [
        ("recreated", "0", 6, None)
    ]
    with pytest.raises(Refused, match="partition 0, from offset 6 on were lost when the topic"):
        log_flush.gaps(ROWS, grown, KNOWN, NEWEST, allowed=False, cuts=cuts)
    for end in (30, 6):  # the second time there is nothing to read yet: it is recorded all the same
        rows = log_flush.positions(ROWS, [region(0, 0, end)], {**KNOWN, **cuts}, 100, cuts)
        assert [(r.region, r.start_position, r.end_position) for r in rows] == [("0", 6, end)]


def test_where_a_new_log_begins() -> None:
    whole, cut = [region(0, 0, 9)], [region(0, 0, 9), region(1, 4, 9)]
    assert log_flush.first_floor(whole, None, [], allowed=False) == 0
    assert log_flush.first_floor(cut, None, [], allowed=False) is None
    assert log_flush.first_floor(cut, 50, [], allowed=False) == 50
    assert log_flush.first_floor(cut, 50, ["topic feed, partition 1"], allowed=True) == 50
    with pytest.raises(Refused, match="may have come after 50: topic feed, partition 1 starts later"):
        log_flush.first_floor(cut, 50, ["topic feed, partition 1"], allowed=False)


def test_the_instant_of_a_timestamp() -> None:
    ms = 1_795_000_000_000
    assert log_flush.physical_ms(ms << 18 | 5, "tso") == ms
    assert log_flush.physical_ms(ms, "ms") == ms
