"""Instants and spans as people type them: text in, milliseconds since 1970 UTC out, and back.

A time without a zone is UTC, so that the same command means the same on every machine.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from lakebackup.errors import UsageProblem

EXAMPLES = (
    "Examples: 2026-11-21T14:05:00Z, '2026-11-21 14:05' (UTC), 2026-11-21T15:05+01:00, 14:05 (today, UTC), "
    "-2h, '90 min ago', now, 1795269900000 (ms since 1970)."
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


def parse_time(text: str, now: int) -> int:
    """The instant that `text` names, in ms since 1970 UTC; `now` (ms) anchors `-2h`, `14:05` and `now`.

    Takes ISO 8601 (RFC 3339 included) with or without a zone, a time of today, a span before now, and
    a number of milliseconds. Raises UsageProblem with examples.
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
    return _not_negative(_to_ms(_from_iso(wanted, now)), text)


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


def _from_iso(text: str, now: int) -> datetime:
    try:
        if text[2:3] == ":":
            today: date = (_EPOCH + now * _MILLISECOND).date()
            return datetime.combine(today, time.fromisoformat(text))
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageProblem(f"{text!r} is not a time.", hint=EXAMPLES) from None


def _to_ms(moment: datetime) -> int:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def _not_negative(ms: int, text: str) -> int:
    if ms < 0:
        raise UsageProblem(f"{text!r} lies before 1970.", hint=EXAMPLES)
    return ms
