"""Schedules: the forms that a person may write, and the times that they mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import UsageProblem
from lakebackup.rules import schedule
from lakebackup.rules.schedule import DAY_MS, HOUR_MS, parse

FORMS = (
    "hourly", "hourly:15", "daily 02:30", "daily", "weekly sun 02:00", "Weekly  Thursday", "monthly 1 02:00",
    "monthly 28 23:59", "every 6h", "every 90 minutes", "30 2 * * mon-fri", "0 */6 * * *", "0 0 L * *",
)  # fmt: skip


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "start", "due"),
    [
        ("hourly", "2026-11-21 14:59:59", "2026-11-21 15:00"),
        ("hourly:15", "2026-11-21 14:14:59", "2026-11-21 14:15"),
        ("hourly:15", "2026-11-21 14:15", "2026-11-21 15:15"),
        ("daily 02:30", "2026-11-21 02:29", "2026-11-21 02:30"),
        ("daily", "2026-11-21 02:29", "2026-11-22 00:00"),
        ("weekly sun 02:00", "2026-11-21 14:00", "2026-11-22 02:00"),
        ("weekly sunday 2:00", "2026-11-22 02:00", "2026-11-29 02:00"),
        ("weekly thu", "2026-11-21 14:00", "2026-11-26 00:00"),
        ("weekly", "2026-11-21 14:00", "2026-11-23 00:00"),
        ("monthly", "2026-11-21 14:00", "2026-12-01 00:00"),
        ("monthly 1 02:00", "2026-03-01 01:59", "2026-03-01 02:00"),
        ("monthly 28 23:59", "2026-01-29 00:00", "2026-02-28 23:59"),
        ("every 6h", "2026-11-21 12:00", "2026-11-21 18:00"),
        ("*/15 * * * *", "2026-11-26 15:12:52", "2026-11-26 15:15"),
        ("30 2 * * mon-fri", "2026-11-23 02:30:10", "2026-11-24 02:30"),
        ("0  0 29 2 *", "2026-11-22 14:00", "2028-02-29 00:00"),
    ],
)
def test_the_next_time_of_a_schedule(text: str, start: str, due: str) -> None:
    assert parse(text).next(ms(start)) == ms(due)


@given(st.sampled_from(FORMS), st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)))  # noqa: DTZ001
def test_the_next_time_is_at_most_one_period_ahead(text: str, moment: datetime) -> None:
    parsed, now_ms = parse(text), int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    due = parsed.next(now_ms)
    assert now_ms < due <= now_ms + parsed.every_ms
    assert parsed.next(due - 1) == due
    assert timedelta(milliseconds=parsed.next(due) - due) >= timedelta(hours=1)


@given(
    st.sampled_from(FORMS),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    st.integers(0, 4 * 10**12),
    st.integers(0, 40 * DAY_MS),
)
def test_between_lists_each_next_time(text: str, zone: str, start_ms: int, span: int) -> None:
    parsed, expected = parse(text, zone), list[int]()
    due = parsed.next(start_ms)
    while due <= start_ms + span:
        expected.append(due)
        due = parsed.next(due)
    assert list(parsed.between(start_ms, start_ms + span)) == expected


@pytest.mark.parametrize(
    ("text", "start", "due"),
    [
        ("daily 02:30", "2026-03-28T12:00+01:00", "2026-03-29T03:00+02:00"),  # 02:30 does not exist
        ("daily 02:30", "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"),
        ("daily 02:30", "2026-10-25T02:29+02:00", "2026-10-25T02:30+02:00"),
        ("daily 02:30", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),  # it is due only once
        ("hourly", "2026-10-25T02:10+02:00", "2026-10-25T02:00+01:00"),
        ("hourly", "2026-10-25T02:10+01:00", "2026-10-25T03:00+01:00"),
        (
            "30 */2 * * *",
            "2026-10-25T02:30+02:00",
            "2026-10-25T02:30+01:00",
        ),  # follows the clock, as cron does
        ("30 */2 * * *", "2026-03-29T00:30+01:00", "2026-03-29T04:30+02:00"),
        ("weekly sun 02:00", "2026-07-01T00:00+02:00", "2026-07-05T02:00+02:00"),
    ],
)
def test_times_of_day_are_those_of_the_zone(text: str, start: str, due: str) -> None:
    start_ms, due_ms = (int(datetime.fromisoformat(moment).timestamp() * 1000) for moment in (start, due))
    assert parse(text, "Europe/Berlin").next(start_ms) == due_ms


def test_an_unknown_zone_is_named() -> None:
    for name in ("Europe/Atlantis", "../etc/passwd", "Mars"):
        with pytest.raises(UsageProblem, match="time zone"):
            parse("daily", name)


@pytest.mark.parametrize("name", ["localtime", "posix/Europe/Berlin", "right/UTC", "posixrules", "Mars"])
def test_a_zone_that_only_this_machine_knows_is_refused(name: str) -> None:
    with pytest.raises(UsageProblem, match="time zone"):
        schedule.require_time_zone(name)
    for zone in (None, "UTC", "Europe/Berlin"):
        schedule.require_time_zone(zone)


def test_the_longest_period_of_a_schedule() -> None:
    assert parse("daily 02:30", "Europe/Berlin").every_ms == 25 * HOUR_MS
    assert parse("0 9-17 * * mon-fri").every_ms == 64 * HOUR_MS
    every = {text: parse(text).every_ms for text in FORMS}
    assert (every["hourly:15"], every["daily"], every["monthly 1 02:00"]) == (HOUR_MS, DAY_MS, 31 * DAY_MS)
    assert every["every 90 minutes"] == schedule.MINUTE_MS * 90


@pytest.mark.parametrize(
    "text",
    ["", "often", "daily 25:00", "weekly 02:00", "weekly xyz", "monthly 29", "monthly 0", "every 10s",
     "every x", "hourly 5", "61 2 * * 0", "0 2 * * xyz", "0 0 31 2 *", "0 2 * *"],
)  # fmt: skip
def test_an_invalid_schedule_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse(text)
