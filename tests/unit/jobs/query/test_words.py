"""Times, spans and numbers in words."""

from __future__ import annotations

import pytest

from lakebackup_jobs.query import words

DAY = 86_400_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, ""),
        (0, "0 s"),
        (20, "20 ms"),
        (61_000, "1 min 1 s"),
        (3 * DAY + 4 * 3_600_000, "3 d 4 h"),
        (-5, "0 s"),
    ],
)
def test_a_span_has_two_units(ms: int | None, text: str) -> None:
    assert words.span(ms) == text


def test_a_time_carries_its_zone() -> None:
    assert words.moment(1_795_269_912_345) == "2026-11-21 14:05 UTC"
    assert words.day(1_795_269_912_345) == "2026-11-21 UTC"
    assert words.moment(1 << 62) == str(1 << 62), "of no calendar"


def test_counts_are_plural_except_for_one() -> None:
    assert [words.counted(number, "topic") for number in (0, 1, 1200)] == [
        "0 topics",
        "1 topic",
        "1,200 topics",
    ]
