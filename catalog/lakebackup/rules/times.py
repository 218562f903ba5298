"""Parse instants and spans as people type them into milliseconds since 1970 UTC, and format them.

A date without a zone is UTC, as in everything that the program prints. The caller gives the zone of a day
such as `yesterday`, and of a time of day without a date. This machine's own zone is never used, so a command
means the same on every machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from lakebackup.errors import UsageProblem
from lakebackup.rules.suggestions import did_you_mean

EXAMPLES = (
    "Examples: 2026-11-21T14:05Z, '2026-11-21 14:05' (UTC), '2026-11-21 14:05 Europe/Berlin', "
    "'yesterday 14:05', 14:05 (today), -2h, '90 min ago', now, 1795269900000 (ms since 1970)."
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT = r"(?P<unit>ms|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)"
MOST_DAYS = 36_500
"""The longest span, in days: 100 years. Dates that far from now are still valid."""
LAST_MS = 253_402_300_799_999
"""The last instant that Python's calendar has: the end of the year 9999."""
MAX_SKEW_MS = 300_000
"""How far the clocks of machines may differ, in ms. A time that is later than now by more than this is in the
future. The view `horizon` has the same number for SQL."""
_DURATION_PART = re.compile(rf"(?P<count>\d+(?:\.\d+)?)\s*{_UNIT}(?![a-z])\s*", re.ASCII)
_DURATION_HINT = "Write a number and a unit: 30s, 15m, 2h, 7d, 1d12h."
_DIGITS = re.compile(r"\d+", re.ASCII)
_DAYS_FROM_TODAY = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY_AND_TIME = re.compile(
    rf"(?:(?P<day>{'|'.join(_DAYS_FROM_TODAY)})(?:\s+at)?(?:\s+|$))?(?P<time>\d?\d:\d\d\S*)?",
    re.ASCII | re.IGNORECASE,
)
_TIME_WITH_ZONE = re.compile(r"(?P<time>.*\S)\s+(?P<zone>UTC|[A-Za-z_]+/[\w/+-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A day and a time of day without a time zone, such as `yesterday 14:05`. `days` counts from today."""

    text: str
    days: int
    clock: time

    def to_ms(self, zone: tzinfo, now_ms: int) -> int:
        """The instant in a time zone, in ms since 1970 UTC. `now_ms`, also in ms, gives today's date.

        In an hour that comes twice, it is the first of the two instants. Raises UsageProblem before 1970.
        """
        today = (_EPOCH + now_ms * _MILLISECOND).astimezone(zone).date()
        moment = datetime.combine(today + timedelta(days=self.days), self.clock, zone)
        return _not_negative(_to_ms(moment), self.text)


def read_time(text: str, now_ms: int) -> int | LocalTime:
    """Parse an instant to ms since 1970 UTC, or to a LocalTime if it depends on a zone that `text` lacks.

    Accepts ISO 8601 (including RFC 3339) with or without a zone, a day or a time of day (`yesterday 14:05`,
    `today`, `14:05`), a span before or after `now_ms` (`-2h`, `90 min ago`, `in 30d`), and a number of
    milliseconds. The name of a zone may follow: `14:05 Europe/Berlin`. `now_ms` is in ms. Raises
    UsageProblem.
    """
    trimmed = text.strip()
    lower = trimmed.lower()
    if lower == "now":
        return now_ms
    if _DIGITS.fullmatch(trimmed):
        return _from_digits(trimmed)
    if lower.startswith("-") or lower.endswith("ago"):
        span = lower.removeprefix("-").removesuffix("ago").strip()
        return _not_negative(now_ms - parse_duration(span, of=text), text)
    if lower.startswith(("+", "in ")):
        return now_ms + parse_duration(lower.removeprefix("+").removeprefix("in "), of=text)
    zone_match = _TIME_WITH_ZONE.fullmatch(trimmed)
    zone = time_zone(zone_match["zone"]) if zone_match else None
    local = _parse_local(zone_match["time"] if zone_match else trimmed, text)
    if local is not None:
        zone = zone or local.clock.tzinfo
        return local.to_ms(zone, now_ms) if zone else local
    return _not_negative(_to_ms(_from_iso(zone_match["time"] if zone_match else trimmed, text, zone)), text)


def parse_time(text: str, now_ms: int, zone: tzinfo = UTC) -> int:
    """Like `read_time`, but a day or a time of day is in `zone`."""
    moment = read_time(text, now_ms)
    return moment.to_ms(zone, now_ms) if isinstance(moment, LocalTime) else moment


def time_zone(name: str | None) -> tzinfo:
    """The time zone with this name in the IANA database; UTC for None. Raises UsageProblem."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise no_time_zone(name) from None


def no_time_zone(name: str | None) -> UsageProblem:
    """The error for a name that no time zone has."""
    example = "Name one of the IANA database, such as Europe/Berlin or UTC."
    hint = did_you_mean(name or "", sorted(available_timezones()), example)
    return UsageProblem(f"{name!r} is not a time zone.", hint=hint)


def parse_duration(text: str, *, of: str | None = None) -> int:
    """Parse a span such as `90s`, `2h`, `1d12h` or `5 minutes` to ms.

    Raises UsageProblem, which quotes `of`, or `text` without it.
    """
    lower = text.strip().lower()
    total, position = 0.0, 0
    while position < len(lower):
        part = _DURATION_PART.match(lower, position)
        if part is None:
            break
        unit = part["unit"]
        total += float(part["count"]) * _UNITS_MS[unit if unit == "ms" else unit[0]]
        position = part.end()
    if not lower or position < len(lower):
        raise UsageProblem(
            f"{of or text!r} is not a span of time.",
            hint=_DURATION_HINT,
        )
    if total > MOST_DAYS * _UNITS_MS["d"]:
        raise UsageProblem(f"{of or text!r} is longer than 100 years.", hint=_DURATION_HINT)
    return round(total)


def format_ts(ms: int) -> str:
    """Format ms since 1970 UTC as `2026-11-21T14:05:00.000Z`, or as a number when there is no such date."""
    try:
        return (_EPOCH + ms * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def format_age(ms: int, now_ms: int) -> str:
    """How long before `now_ms` an instant was, such as `3 h ago`, in a form that `parse_time` accepts.

    The result is the date after 100 days or more, and the instant itself if it is in the future. Both
    parameters are in ms since 1970 UTC.
    """
    age_ms = now_ms - ms
    if age_ms < 0:
        return format_ts(ms)
    if age_ms >= 100 * _UNITS_MS["d"]:
        return format_ts(ms).partition("T")[0]
    units = (("d", "d", 2), ("h", "h", 2), ("min", "m", 2))
    unit, unit_ms = next(
        (
            (label, _UNITS_MS[unit])
            for label, unit, min_count in units
            if age_ms >= min_count * _UNITS_MS[unit]
        ),
        ("s", _UNITS_MS["s"]),
    )
    return f"{age_ms // unit_ms} {unit} ago"


def _from_digits(digits: str) -> int:
    if len(digits) in (4, 6, 8):
        hint = f"Write the date as {digits[:4]}-{digits[4:6] or '01'}-{digits[6:] or '01'}"
        if len(digits) < 8:
            hint += f", a time of today as {':'.join(re.findall('..', digits))}"
        raise UsageProblem(
            f"{digits!r} could be a date or a number of milliseconds.",
            hint=f"{hint}.",
        )
    if len(digits) == 10:
        raise UsageProblem(
            f"{digits!r} looks like seconds since 1970; a bare number is milliseconds.",
            hint=f"Write {digits}000.",
        )
    if len(digits) > 19 or int(digits) > LAST_MS:
        raise UsageProblem(f"{digits!r} lies beyond the year 9999.", hint=EXAMPLES)
    return int(digits)


def _parse_local(trimmed: str, text: str) -> LocalTime | None:
    """Parse a day or a time of day; None if `trimmed` is neither. A UsageProblem quotes `text`."""
    parts = _DAY_AND_TIME.fullmatch(trimmed)
    if parts is None or not trimmed:
        return None
    days = _DAYS_FROM_TODAY[parts["day"].lower()] if parts["day"] else 0
    clock = parts["time"] or "00:00"
    try:
        return LocalTime(text, days, time.fromisoformat(clock if clock[2] == ":" else f"0{clock}"))
    except ValueError:
        raise UsageProblem(f"{text!r} is not a time.", hint=EXAMPLES) from None


def _from_iso(iso_text: str, text: str, zone: tzinfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(iso_text)
    except (ValueError, OverflowError):
        raise UsageProblem(f"{text!r} is not a time.", hint=EXAMPLES) from None
    if zone is None:
        return moment
    if moment.tzinfo is not None:
        raise UsageProblem(f"{text!r} has two time zones.", hint="Leave one of them out.")
    return moment.replace(tzinfo=zone)


def _to_ms(moment: datetime) -> int:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def _not_negative(ms: int, text: str) -> int:
    if ms < 0:
        raise UsageProblem(f"{text!r} lies before 1970.", hint=EXAMPLES)
    return ms
