"""Schedules: what a person may write, and when that is."""

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
    "monthly 28 23:59", "every 6h", "every 90 minutes",
)  # fmt: skip


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "now", "latest"),
    [
        ("hourly", "2026-11-21 14:59:59", "2026-11-21 14:00"),
        ("hourly:15", "2026-11-21 14:14:59", "2026-11-21 13:15"),
        ("hourly:15", "2026-11-21 14:15", "2026-11-21 14:15"),
        ("daily 02:30", "2026-11-21 02:29", "2026-11-20 02:30"),
        ("daily", "2026-11-21 02:29", "2026-11-21 00:00"),
        ("weekly sun 02:00", "2026-11-21 14:00", "2026-11-15 02:00"),
        ("weekly sunday 2:00", "2026-11-22 02:00", "2026-11-22 02:00"),
        ("weekly thu", "2026-11-21 14:00", "2026-11-19 00:00"),
        ("monthly 1 02:00", "2026-03-01 01:59", "2026-02-01 02:00"),
        ("monthly 28 23:59", "2026-01-05 00:00", "2025-12-28 23:59"),
        ("every 6h", "2026-11-21 14:00", "2026-11-21 12:00"),
    ],
)
def test_the_latest(text: str, now: str, latest: str) -> None:
    assert parse(text).latest(ms(now)) == ms(latest)


@given(st.sampled_from(FORMS), st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)))  # noqa: DTZ001
def test_the_latest_is_never_ahead_nor_longer_ago_than_every(text: str, moment: datetime) -> None:
    found, now = parse(text), int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    latest = found.latest(now)
    assert latest <= now < latest + found.every_ms
    assert found.latest(latest) == latest
    assert timedelta(milliseconds=latest - found.latest(latest - 1)) >= timedelta(hours=1)


def test_how_often() -> None:
    every = {text: parse(text).every_ms for text in FORMS}
    assert (every["hourly:15"], every["daily"], every["monthly 1 02:00"]) == (HOUR_MS, DAY_MS, 31 * DAY_MS)
    assert every["every 90 minutes"] == schedule.MINUTE_MS * 90


@pytest.mark.parametrize(
    "text",
    ["", "often", "daily 25:00", "weekly 02:00", "weekly xyz", "monthly 29", "monthly 0", "every 10s",
     "every x", "hourly 5", "0 2 * * 0"],
)  # fmt: skip
def test_what_is_none_is_reported(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse(text)
