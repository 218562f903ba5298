from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import UsageProblem
from lakebackup.rules.times import format_age, format_ts, parse_duration, parse_time, time_zone

NOW_MS = 1795269900123  # 2026-11-21T14:05:00.123Z
MS_1405 = 1795269900000  # 2026-11-21T14:05Z
HOUR = 3_600_000
LAST = 253402300799999  # 9999-12-31T23:59:59.999Z


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-21T14:05:00Z", MS_1405),
        ("2026-11-21T14:05:00.000Z", MS_1405),
        ("2026-11-21 14:05", MS_1405),
        (" 2026-11-21 14:05 ", MS_1405),
        ("2026-11-21T15:05+01:00", MS_1405),
        ("20261121T140500Z", MS_1405),
        ("2026-11-21T14:05:00.1239", MS_1405 + 123),
        ("2026-11-21", MS_1405 - 14 * HOUR - 5 * 60_000),
        ("14:05", MS_1405),
        ("14:05:00.5", MS_1405 + 500),
        ("14:05+01:00", MS_1405 - HOUR),
        ("yesterday", MS_1405 - 38 * HOUR - 5 * 60_000),
        ("yesterday 14:05", MS_1405 - 24 * HOUR),
        ("Yesterday at 9:05", MS_1405 - 29 * HOUR),
        ("today 09:00", MS_1405 - 5 * HOUR - 5 * 60_000),
        ("tomorrow 14:05", MS_1405 + 24 * HOUR),
        ("yesterday 14:05 Europe/Berlin", MS_1405 - 25 * HOUR),
        ("2026-11-21 15:05 Europe/Berlin", MS_1405),
        ("in 30d", NOW_MS + 720 * HOUR),
        ("+2h", NOW_MS + 2 * HOUR),
        ("now", NOW_MS),
        ("-2h", NOW_MS - 2 * HOUR),
        ("2h ago", NOW_MS - 2 * HOUR),
        ("-1d12h", NOW_MS - 36 * HOUR),
        ("90 min ago", NOW_MS - 90 * 60_000),
        ("1 hour 30 minutes ago", NOW_MS - 90 * 60_000),
        ("-250ms", NOW_MS - 250),
        ("-1.5H", NOW_MS - HOUR - HOUR // 2),
        ("1795269900000", MS_1405),
        ("0", 0),
        ("42", 42),
        ("0001-01-01T00:00+00:00", None),
        ("9999-12-31T23:59:59.999-23:59", LAST + 24 * HOUR - 60_000),
    ],
)
def test_times_that_people_type(text: str, ms: int | None) -> None:
    if ms is None:
        with pytest.raises(UsageProblem, match="before 1970"):
            parse_time(text, NOW_MS)
    else:
        assert parse_time(text, NOW_MS) == ms


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a time"),
        ("yesterday 25:00", "not a time"),
        ("yesterdays", "not a time"),
        ("14:05 Europe/Berln", "is not a time zone"),
        ("2026-11-21T14:05Z Europe/Berlin", "two time zones"),
        ("2026-11-31", "not a time"),
        ("2026-11-21 25:00", "not a time"),
        ("2026-11-21T14:05 CET", "not a time"),
        ("14:65", "not a time"),
        ("-2", "not a span"),
        ("-2x", "not a span"),
        ("-", "not a span"),
        ("2 fortnights ago", "not a span"),
        ("1795269900", "seconds"),
        ("20261121", "could be a date"),
        ("2026", "could be a date"),
        ("202611", "could be a date"),
        ("253402300800000", "beyond the year 9999"),
        ("9" * 19, "beyond the year 9999"),
        ("-3000w", "before 1970"),
        ("٣", "not a time"),  # a digit, but not an ASCII one
    ],
)
def test_a_refused_time_has_a_hint(text: str, complaint: str) -> None:
    with pytest.raises(UsageProblem, match=complaint) as refused:
        parse_time(text, NOW_MS)
    assert refused.value.hint


@given(st.integers(0, LAST))
def test_a_formatted_time_reads_back(ms: int) -> None:
    assert parse_time(format_ts(ms), NOW_MS) == ms


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001 - hypothesis wants them naive
    st.integers(-1439, 1439),
)
def test_a_zone_moves_the_instant_and_no_zone_is_utc(moment: datetime, minutes: int) -> None:
    expected = (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)  # noqa: DTZ001
    assert parse_time(moment.isoformat(" "), NOW_MS) == expected
    zone = timezone(timedelta(minutes=minutes))
    assert parse_time(moment.replace(tzinfo=UTC).astimezone(zone).isoformat(), NOW_MS) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_usage_problem(text: str) -> None:
    with suppress(UsageProblem):
        assert parse_time(text, NOW_MS) >= 0


@pytest.mark.parametrize("text", ["36501d", "9" * 400 + "d", "5215w"])
def test_a_span_is_100_years_at_most(text: str) -> None:
    assert parse_duration("36500d") == 36_500 * 24 * HOUR
    with pytest.raises(UsageProblem, match="is longer than 100 years"):
        parse_duration(text)


@pytest.mark.parametrize("ms", [LAST + 1, 2**63 - 1, -(2**63)])
def test_a_time_beyond_the_calendar_is_formatted_as_a_number(ms: int) -> None:
    assert format_ts(ms) == str(ms)


def test_times_are_formatted_in_utc() -> None:
    assert format_ts(NOW_MS) == "2026-11-21T14:05:00.123Z"
    assert format_ts(-1) == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0 s ago"),
        (119_999, "119 s ago"),
        (120_000, "2 min ago"),
        (2 * HOUR - 1, "119 min ago"),
        (3 * HOUR + 59 * 60_000, "3 h ago"),
        (48 * HOUR, "2 d ago"),
        (99 * 24 * HOUR, "99 d ago"),
        (100 * 24 * HOUR, "2026-08-13"),
        (-1000, "2026-11-21T14:05:01.123Z"),
    ],
)
def test_an_age_reads_back(age_ms: int, text: str) -> None:
    assert format_age(NOW_MS - age_ms, NOW_MS) == text
    assert abs(parse_time(text, NOW_MS) - (NOW_MS - age_ms)) < max(24 * HOUR, age_ms / 2)


@pytest.mark.parametrize(
    ("text", "ms"), [("60s", 60_000), ("2 minutes", 120_000), ("1w", 168 * HOUR), ("0s", 0)]
)
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


def test_a_day_and_a_time_of_day_are_in_the_zone_of_the_caller() -> None:
    berlin = time_zone("Europe/Berlin")
    assert parse_time("yesterday 14:05", NOW_MS, berlin) == MS_1405 - 25 * HOUR
    late = NOW_MS + 9 * HOUR + 30 * 60_000  # 23:35 in UTC, after midnight in Berlin
    assert parse_time("today", late, berlin) == MS_1405 + 9 * HOUR - 5 * 60_000
    # A date without a zone is in UTC all the same.
    assert parse_time("2026-11-21 14:05", NOW_MS, berlin) == MS_1405
