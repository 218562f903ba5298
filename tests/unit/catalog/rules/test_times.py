from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import UsageProblem
from lakebackup.rules.times import format_age, format_ts, parse_duration, parse_time, time_zone

NOW = 1795269900123  # 2026-11-21T14:05:00.123Z
AT = 1795269900000
HOUR = 3_600_000
LAST = 253402300799999  # 9999-12-31T23:59:59.999Z


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-21T14:05:00Z", AT),
        ("2026-11-21T14:05:00.000Z", AT),
        ("2026-11-21 14:05", AT),
        (" 2026-11-21 14:05 ", AT),
        ("2026-11-21T15:05+01:00", AT),
        ("20261121T140500Z", AT),
        ("2026-11-21T14:05:00.1239", AT + 123),
        ("2026-11-21", AT - 14 * HOUR - 5 * 60_000),
        ("14:05", AT),
        ("14:05:00.5", AT + 500),
        ("14:05+01:00", AT - HOUR),
        ("yesterday", AT - 38 * HOUR - 5 * 60_000),
        ("yesterday 14:05", AT - 24 * HOUR),
        ("Yesterday at 9:05", AT - 29 * HOUR),
        ("today 09:00", AT - 5 * HOUR - 5 * 60_000),
        ("tomorrow 14:05", AT + 24 * HOUR),
        ("yesterday 14:05 Europe/Berlin", AT - 25 * HOUR),
        ("2026-11-21 15:05 Europe/Berlin", AT),
        ("in 30d", NOW + 720 * HOUR),
        ("+2h", NOW + 2 * HOUR),
        ("now", NOW),
        ("-2h", NOW - 2 * HOUR),
        ("2h ago", NOW - 2 * HOUR),
        ("-1d12h", NOW - 36 * HOUR),
        ("90 min ago", NOW - 90 * 60_000),
        ("1 hour 30 minutes ago", NOW - 90 * 60_000),
        ("-250ms", NOW - 250),
        ("-1.5H", NOW - HOUR - HOUR // 2),
        ("1795269900000", AT),
        ("0", 0),
        ("42", 42),
        ("0001-01-01T00:00+00:00", None),
        ("9999-12-31T23:59:59.999-23:59", LAST + 24 * HOUR - 60_000),
    ],
)
def test_what_people_type(text: str, ms: int | None) -> None:
    if ms is None:
        with pytest.raises(UsageProblem, match="before 1970"):
            parse_time(text, NOW)
    else:
        assert parse_time(text, NOW) == ms


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
        ("٣", "not a time"),  # digits, but not ours
    ],
)
def test_what_is_refused_says_how_to_write_it(text: str, complaint: str) -> None:
    with pytest.raises(UsageProblem, match=complaint) as refused:
        parse_time(text, NOW)
    assert refused.value.hint


@given(st.integers(0, LAST))
def test_a_formatted_time_reads_back(ms: int) -> None:
    assert parse_time(format_ts(ms), NOW) == ms


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001 - hypothesis wants them naive
    st.integers(-1439, 1439),
)
def test_a_zone_moves_the_instant_and_no_zone_is_utc(moment: datetime, minutes: int) -> None:
    expected = (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)  # noqa: DTZ001
    assert parse_time(moment.isoformat(" "), NOW) == expected
    zone = timezone(timedelta(minutes=minutes))
    assert parse_time(moment.replace(tzinfo=UTC).astimezone(zone).isoformat(), NOW) == expected


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_usage_problem(text: str) -> None:
    with suppress(UsageProblem):
        assert parse_time(text, NOW) >= 0


@pytest.mark.parametrize("text", ["36501d", "9" * 400 + "d", "5215w"])
def test_a_span_is_100_years_at_most(text: str) -> None:
    assert parse_duration("36500d") == 36_500 * 24 * HOUR
    with pytest.raises(UsageProblem, match="is longer than 100 years"):
        parse_duration(text)


@pytest.mark.parametrize("ms", [LAST + 1, 2**63 - 1, -(2**63)])
def test_beyond_any_calendar_the_number_stands(ms: int) -> None:
    assert format_ts(ms) == str(ms)


def test_format() -> None:
    assert format_ts(NOW) == "2026-11-21T14:05:00.123Z"
    assert format_ts(-1) == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("spent", "shown"),
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
def test_an_age_reads_back(spent: int, shown: str) -> None:
    assert format_age(NOW - spent, NOW) == shown
    assert abs(parse_time(shown, NOW) - (NOW - spent)) < max(24 * HOUR, spent / 2)


@pytest.mark.parametrize(
    ("text", "ms"), [("60s", 60_000), ("2 minutes", 120_000), ("1w", 168 * HOUR), ("0s", 0)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


def test_a_day_and_a_time_of_day_are_in_the_zone_of_the_caller() -> None:
    berlin = time_zone("Europe/Berlin")
    assert parse_time("yesterday 14:05", NOW, berlin) == AT - 25 * HOUR
    late = NOW + 9 * HOUR + 30 * 60_000  # 23:35 in UTC, after midnight in Berlin
    assert parse_time("today", late, berlin) == AT + 9 * HOUR - 5 * 60_000
    assert parse_time("2026-11-21 14:05", NOW, berlin) == AT  # a date without a zone is UTC all the same
