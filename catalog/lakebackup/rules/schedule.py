"""Schedules: when a backup of a source is due. Pure. Times are UTC, so each day has 24 hours.

    hourly  hourly:MM  daily HH:MM  weekly DAY HH:MM  monthly D HH:MM  every 6h

`every` counts from 1970-01-01; the default time of day is 00:00.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakebackup.errors import UsageProblem
from lakebackup.rules.times import parse_duration

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FIRST_DAY = 3  # 1970 began on a Thursday
_TIME = r"(?: (?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d))?"
_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        r"(?P<hourly>hourly)(?::(?P<minute>[0-5]\d))?",
        rf"(?P<daily>daily){_TIME}",
        rf"weekly (?P<weekday>{'|'.join(_DAYS)})[a-z]*{_TIME}",
        rf"monthly (?P<day>[12]?\d){_TIME}",
        r"every (?P<span>.+)",
    )
)
_HINT = "Write hourly, hourly:15, 'daily 02:30', 'weekly sun 02:00', 'monthly 1 02:00' or 'every 6h' (UTC)."


@dataclass(frozen=True, slots=True)
class Schedule:
    """Instants at `offset_ms` in each period of `every_ms` since 1970; with `day`, in that day of each month.

    `every_ms` is the longest time between two instants.
    """

    every_ms: int
    offset_ms: int
    day: int | None = None

    def latest(self, now: int) -> int:
        """The newest instant at or before `now`, both in ms since 1970 UTC."""
        if self.day is None:
            return (now - self.offset_ms) // self.every_ms * self.every_ms + self.offset_ms
        moment = datetime.fromtimestamp(now / 1000, UTC)
        first = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        for month in (first, (first - timedelta(days=1)).replace(day=1)):
            found = int(month.timestamp()) * 1000 + (self.day - 1) * DAY_MS + self.offset_ms
            if found <= now:
                return found
        raise AssertionError("a month has no more than 31 days")


def parse(text: str) -> Schedule:
    """Parse a schedule. Raises UsageProblem."""
    lower = " ".join(text.lower().split())
    found = next((match for form in _FORMS if (match := form.fullmatch(lower))), None)
    if found is None:
        raise UsageProblem(f"{text!r} is not a schedule.", hint=_HINT)
    named = found.groupdict()
    if named.get("span"):
        every = parse_duration(named["span"], of=text)
        if every < MINUTE_MS:
            raise UsageProblem(f"{text!r} is too often: the shortest period is a minute.", hint=_HINT)
        return Schedule(every, 0)
    offset = int(named.get("hour") or 0) * HOUR_MS + int(named.get("minute") or 0) * MINUTE_MS
    if named.get("hourly"):
        return Schedule(HOUR_MS, offset)
    if named.get("daily"):
        return Schedule(DAY_MS, offset)
    if named.get("weekday"):
        day = (_DAYS.index(named["weekday"]) - _FIRST_DAY) % 7
        return Schedule(7 * DAY_MS, day * DAY_MS + offset)
    if not 1 <= int(named["day"]) <= 28:
        raise UsageProblem(f"{text!r}: the day must be 1 to 28, which every month has.", hint=_HINT)
    return Schedule(31 * DAY_MS, offset, int(named["day"]))
