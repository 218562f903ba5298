"""Parse schedules, and compute when a backup of a source is due. Without I/O, but `require_time_zone`.

    hourly  hourly:MM  daily HH:MM  weekly DAY HH:MM  monthly D HH:MM  every 6h  or a cron expression

Times of day are in a time zone. As with cron, a time that a clock change skips is due right after the change,
and a time that comes twice is due the first time. But if the minutes or hours of an expression begin with
`*`, it is due whenever the clock shows one of its times. `every` counts from 1970-01-01 UTC. The default time
of day is 00:00; the default days are Monday and the first of the month.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count, dropwhile, islice, pairwise, takewhile
from zoneinfo import available_timezones

from cronsim import CronSim, CronSimError

from lakebackup.errors import UsageProblem
from lakebackup.rules.times import no_time_zone, parse_duration, time_zone

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
# To find the longest time between two instants: those of two years, but no more than 50,000.
_SAMPLED_PERIOD, _MAX_INSTANTS = timedelta(days=2 * 366), 50_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """The instants of a cron expression in a time zone, or every `period_ms` since 1970 without one."""

    text: str
    cron: str | None = None
    zone: tzinfo = UTC
    period_ms: int = 0

    def next(self, after_ms: int) -> int:
        """The first instant later than `after_ms`, both in ms since 1970 UTC."""
        return next(self._later(after_ms))

    def between(self, after_ms: int, until: int) -> Iterator[int]:
        """The instants later than `after_ms` and not later than `until`, both in ms since 1970 UTC."""
        return takewhile(until.__ge__, self._later(after_ms))

    def _later(self, after_ms: int) -> Iterator[int]:
        """All instants later than `after`."""
        if self.cron is None:
            return count((after_ms // self.period_ms + 1) * self.period_ms, self.period_ms)
        minute = datetime.fromtimestamp(after_ms // MINUTE_MS * 60, self.zone)
        return dropwhile(after_ms.__ge__, map(_ms, CronSim(self.cron, minute)))

    @property
    def every_ms(self) -> int:
        """The longest time between two instants, in ms. Raises UsageProblem if there are none."""
        if self.cron is None:
            return self.period_ms
        start = datetime(2020, 1, 1, tzinfo=self.zone)
        instants = map(_ms, islice(CronSim(self.cron, start), _MAX_INSTANTS))
        first_two = list(islice(instants, 2))
        if len(first_two) < 2:
            raise UsageProblem(f"{self.text!r} never comes.", hint=_HINT)
        return max(
            b - a
            for a, b in pairwise((*first_two, *takewhile(_ms(start + _SAMPLED_PERIOD).__gt__, instants)))
        )


def parse(text: str, zone: str | None = None) -> Schedule:
    """Parse a schedule whose times of day are in `zone`; None means UTC. Raises UsageProblem."""
    lower = " ".join(text.lower().split())
    form_match = next((match for form in _FORMS if (match := form.fullmatch(lower))), None)
    if form_match is None:
        raise UsageProblem(f"{text!r} is not a schedule.", hint=_HINT)
    fields = form_match.groupdict()
    if fields.get("span"):
        period_ms = parse_duration(fields["span"], of=text)
        if period_ms < MINUTE_MS:
            raise UsageProblem(f"{text!r} is too often: the shortest period is a minute.", hint=_HINT)
        return Schedule(text, period_ms=period_ms)
    day = fields.get("day") or ("1" if fields.get("monthly") else "*")
    if day == "29":
        raise UsageProblem(f"{text!r}: the day must be 1 to 28, which every month has.", hint=_HINT)
    weekday = fields.get("weekday") or ("mon" if fields.get("weekly") else "*")
    clock_time = (
        f"{int(fields.get('minute') or 0)} {'*' if fields.get('hourly') else int(fields.get('hour') or 0)}"
    )
    cron = fields.get("cron") or f"{clock_time} {day} * {weekday}"
    tz = time_zone(zone)
    try:
        CronSim(cron, datetime.now(tz))
    except CronSimError as error:
        raise UsageProblem(f"{text!r} is not a schedule: {error}.", hint=_HINT) from None
    return Schedule(text, cron, tz)


def require_time_zone(name: str | None) -> None:
    """Raise UsageProblem unless SQL knows the time zone too.

    This machine's files also have names that SQL lacks (`localtime`, `posix/…`). Reads the folder of the time
    zone database.
    """
    if name and (name == "localtime" or name not in available_timezones()):
        raise no_time_zone(name)


def _ms(instant: datetime) -> int:
    return int(instant.timestamp()) * 1000
