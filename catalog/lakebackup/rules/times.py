"""Instants and spans as people type them: text in, milliseconds since 1970 UTC out, and back.

A date without a zone is UTC, as in all that the program prints. A day such as `yesterday` and a time of day
alone are those of a clock on the wall, whose zone the caller knows. This machine's own zone never counts, so
the same command means the same on every machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from lakebackup.errors import UsageProblem
from lakebackup.rules.suggestions import did_you_mean

if TYPE_CHECKING:
    from datetime import tzinfo

EXAMPLES = (
    "Examples: 2026-11-21T14:05Z, '2026-11-21 14:05' (UTC), '2026-11-21 14:05 Europe/Berlin', "
    "'yesterday 14:05', 14:05 (today), -2h, '90 min ago', now, 1795269900000 (ms since 1970)."
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT = r"(?P<unit>ms|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)"
MOST_DAYS = 36_500
"""Of the longest span: 100 years. Dates so far from now still have a calendar."""
LAST_MS = 253_402_300_799_999
"""The last instant that a calendar reaches: the end of the year 9999."""
MAX_SKEW_MS = 300_000
"""How far the clocks of machines may differ. A time later than the present by more is in the future. The view
`horizon` has it for SQL."""
_PART = re.compile(rf"(?P<count>\d+(?:\.\d+)?)\s*{_UNIT}(?![a-z])\s*", re.ASCII)
_SPANS = "Write a number and a unit: 30s, 15m, 2h, 7d, 1d12h."
_DIGITS = re.compile(r"\d+", re.ASCII)
_DAYS_FROM_TODAY = {"yesterday": -1, "today": 0, "tomorrow": 1}
_ON_THE_WALL = re.compile(
    rf"(?:(?P<day>{'|'.join(_DAYS_FROM_TODAY)})(?:\s+at)?(?:\s+|$))?(?P<time>\d?\d:\d\d\S*)?",
    re.ASCII | re.IGNORECASE,
)
_WITH_ZONE = re.compile(r"(?P<time>.*\S)\s+(?P<zone>UTC|[A-Za-z_]+/[\w/+-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A day and a time of day as a clock on the wall shows them: `yesterday 14:05`. `days`: from today."""

    text: str
    days: int
    clock: time

    def at(self, zone: tzinfo, now: int) -> int:
        """The instant in a time zone, in ms since 1970 UTC, where it is `now` (ms). Of an hour that comes
        twice it is the first."""
        today = (_EPOCH + now * _MILLISECOND).astimezone(zone).date()
        moment = datetime.combine(today + timedelta(days=self.days), self.clock, zone)
        return _not_negative(_to_ms(moment), self.text)


def read_time(text: str, now: int) -> int | LocalTime:
    """The instant that `text` names, in ms since 1970 UTC, or a LocalTime whose zone it does not say.

    Takes ISO 8601 (RFC 3339 included) with or without a zone, a day or a time of day (`yesterday 14:05`,
    `today`, `14:05`), a span before or after `now` (`-2h`, `90 min ago`, `in 30d`), and a number of
    milliseconds. The name of a zone may follow: `14:05 Europe/Berlin`. Raises UsageProblem with examples.
    """
    wanted = text.strip()
    lower = wanted.lower()
    if lower == "now":
        return now
    if _DIGITS.fullmatch(wanted):
        return _from_digits(wanted)
    if lower.startswith("-") or lower.endswith("ago"):
        span = lower.removeprefix("-").removesuffix("ago").strip()
        return _not_negative(now - parse_duration(span, of=text), text)
    if lower.startswith(("+", "in ")):
        return now + parse_duration(lower.removeprefix("+").removeprefix("in "), of=text)
    named = _WITH_ZONE.fullmatch(wanted)
    zone = time_zone(named["zone"]) if named else None
    local = _on_the_wall(named["time"] if named else wanted, text)
    if local is not None:
        zone = zone or local.clock.tzinfo
        return local.at(zone, now) if zone else local
    return _not_negative(_to_ms(_from_iso(named["time"] if named else wanted, text, zone)), text)


def parse_time(text: str, now: int, zone: tzinfo = UTC) -> int:
    """As `read_time`; a day or a time of day is in `zone`."""
    moment = read_time(text, now)
    return moment.at(zone, now) if isinstance(moment, LocalTime) else moment


def time_zone(name: str | None) -> tzinfo:
    """A time zone by its name in the IANA database; UTC for None. Raises UsageProblem."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise no_time_zone(name) from None


def no_time_zone(name: str | None) -> UsageProblem:
    """The error for a name that is no time zone's."""
    example = "Name one of the IANA database, such as Europe/Berlin or UTC."
    hint = did_you_mean(name or "", sorted(available_timezones()), example)
    return UsageProblem(f"{name!r} is not a time zone.", hint=hint)


def parse_duration(text: str, *, of: str | None = None) -> int:
    """A span such as `90s`, `2h`, `1d12h` or `5 minutes` in ms. Raises UsageProblem, which quotes `of`."""
    lower = text.strip().lower()
    total, position = 0.0, 0
    while position < len(lower):
        part = _PART.match(lower, position)
        if part is None:
            break
        unit = part["unit"]
        total += float(part["count"]) * _UNITS_MS[unit if unit == "ms" else unit[0]]
        position = part.end()
    if not lower or position < len(lower):
        raise UsageProblem(
            f"{of or text!r} is not a span of time.",
            hint=_SPANS,
        )
    if total > MOST_DAYS * _UNITS_MS["d"]:
        raise UsageProblem(f"{of or text!r} is longer than 100 years.", hint=_SPANS)
    return round(total)


def format_ts(ms: int) -> str:
    """`2026-11-21T14:05:00.000Z` for ms since 1970 UTC; the bare number where no calendar reaches."""
    try:
        return (_EPOCH + ms * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def format_age(ms: int, now: int) -> str:
    """How long before `now` an instant was, such as `3 h ago`, which parse_time takes; its date when that is
    longer than 99 days, and the instant itself when it is yet to come. Both in ms since 1970 UTC.
    """
    spent = now - ms
    if spent < 0:
        return format_ts(ms)
    if spent >= 100 * _UNITS_MS["d"]:
        return format_ts(ms).partition("T")[0]
    units = (("d", "d", 2), ("h", "h", 2), ("min", "m", 2))
    unit, size = next(
        ((shown, _UNITS_MS[unit]) for shown, unit, least in units if spent >= least * _UNITS_MS[unit]),
        ("s", _UNITS_MS["s"]),
    )
    return f"{spent // size} {unit} ago"


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


def _on_the_wall(wanted: str, text: str) -> LocalTime | None:
    """The day or time of day that `wanted` is, None if it is neither. A UsageProblem quotes `text`."""
    parts = _ON_THE_WALL.fullmatch(wanted)
    if parts is None or not wanted:
        return None
    days = _DAYS_FROM_TODAY[parts["day"].lower()] if parts["day"] else 0
    clock = parts["time"] or "00:00"
    try:
        return LocalTime(text, days, time.fromisoformat(clock if clock[2] == ":" else f"0{clock}"))
    except ValueError:
        raise UsageProblem(f"{text!r} is not a time.", hint=EXAMPLES) from None


def _from_iso(wanted: str, text: str, zone: tzinfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(wanted)
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
