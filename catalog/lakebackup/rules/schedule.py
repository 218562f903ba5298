"""Schedules: when a backup of a source is due. Pure.

    hourly  hourly:MM  daily HH:MM  weekly DAY HH:MM  monthly D HH:MM  every 6h  or a cron expression

Times of day are those of a time zone. As with cron, a time that a clock change skips is due right after it,
and one that comes twice is due the first time; expressions whose minutes or hours begin with `*` follow the
clock, and are due as often as it shows their times. `every` counts from 1970-01-01 UTC; the default time of
day is 00:00, the default days are Monday and the first of the month.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, dropwhile, islice, pairwise, takewhile
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from cronsim import CronSim, CronSimError

from lakebackup.errors import UsageProblem
from lakebackup.rules.times import no_time_zone, parse_duration, time_zone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = r"(?: (?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d))?"
_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        r"(?P<hourly>hourly)(?::(?P<minute>[0-5]\d))?",
        rf"(?P<daily>daily){_TIME}",
        rf"(?P<weekly>weekly)(?: (?P<weekday>{'|'.join(_DAYS)})[a-z]*{_TIME})?",
        rf"(?P<monthly>monthly)(?: (?P<day>[1-9]|[12]\d){_TIME})?",
        r"every (?P<span>.+)",
        r"(?P<cron>\S+(?: \S+){4})",
    )
)
_HINT = (
    "Write hourly, hourly:15, 'daily 02:30', 'weekly sun 02:00', 'monthly 1 02:00', 'every 6h', "
    "or five fields of cron, such as '30 2 * * mon-fri'."
)
# Instants that are looked at for the longest time between two: those of two years, and no more than so many.
_LOOKED_AT, _MOST = timedelta(days=2 * 366), 50_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """The instants of a cron expression in a time zone; without one, those every `period_ms` since 1970."""

    text: str
    cron: str | None = None
    zone: tzinfo = UTC
    period_ms: int = 0

    def next(self, after: int) -> int:
        """The first instant later than `after`, both in ms since 1970 UTC."""
        return next(self._later(after))

    def between(self, after: int, until: int) -> Iterator[int]:
        """The instants later than `after` and not later than `until`, both in ms since 1970 UTC."""
        return takewhile(until.__ge__, self._later(after))

    def _later(self, after: int) -> Iterator[int]:
        """All instants later than `after`."""
        if self.cron is None:
            return count((after // self.period_ms + 1) * self.period_ms, self.period_ms)
        minute = datetime.fromtimestamp(after // MINUTE_MS * 60, self.zone)
        return dropwhile(after.__ge__, map(_ms, CronSim(self.cron, minute)))

    @property
    def every_ms(self) -> int:
        """The longest time between two instants. Raises UsageProblem when there are none."""
        if self.cron is None:
            return self.period_ms
        begin = datetime(2020, 1, 1, tzinfo=self.zone)
        instants = map(_ms, islice(CronSim(self.cron, begin), _MOST))
        first = list(islice(instants, 2))
        if len(first) < 2:
            raise UsageProblem(f"{self.text!r} never comes.", hint=_HINT)
        return max(b - a for a, b in pairwise((*first, *takewhile(_ms(begin + _LOOKED_AT).__gt__, instants))))


def parse(text: str, zone: str | None = None) -> Schedule:
    """Parse a schedule; `zone` is of its times of day, UTC without one. Raises UsageProblem."""
    lower = " ".join(text.lower().split())
    found = next((match for form in _FORMS if (match := form.fullmatch(lower))), None)
    if found is None:
        raise UsageProblem(f"{text!r} is not a schedule.", hint=_HINT)
    named = found.groupdict()
    if named.get("span"):
        every = parse_duration(named["span"], of=text)
        if every < MINUTE_MS:
            raise UsageProblem(f"{text!r} is too often: the shortest period is a minute.", hint=_HINT)
        return Schedule(text, period_ms=every)
    day = named.get("day") or ("1" if named.get("monthly") else "*")
    if day == "29":
        raise UsageProblem(f"{text!r}: the day must be 1 to 28, which every month has.", hint=_HINT)
    weekday = named.get("weekday") or ("mon" if named.get("weekly") else "*")
    at = f"{int(named.get('minute') or 0)} {'*' if named.get('hourly') else int(named.get('hour') or 0)}"
    cron = named.get("cron") or f"{at} {day} * {weekday}"
    where = time_zone(zone)
    try:
        CronSim(cron, datetime.now(where))
    except CronSimError as error:
        raise UsageProblem(f"{text!r} is not a schedule: {error}.", hint=_HINT) from None
    return Schedule(text, cron, where)


def require_time_zone(name: str | None) -> None:
    """Raises UsageProblem unless SQL knows it too: this machine's files have names of their own (`localtime`,
    `posix/…`). It reads the folder of the database."""
    if name and (name == "localtime" or name not in available_timezones()):
        raise no_time_zone(name)


def _ms(instant: datetime) -> int:
    return int(instant.timestamp()) * 1000
