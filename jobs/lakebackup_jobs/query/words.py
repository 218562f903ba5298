"""Texts for times, time spans and numbers, in the report, its charts and the command line."""

from __future__ import annotations

from lakebackup.rules.times import format_ts


def day(ms: int) -> str:
    """Return the day (UTC) of an instant in ms."""
    return f"{format_ts(ms)[:10]} UTC"


def moment(ms: int) -> str:
    """Return an instant in ms, to the minute and with its zone; as a number if it is beyond the calendar."""
    text = format_ts(ms)
    return f"{text[:10]} {text[11:16]} UTC" if text.endswith("Z") else text


def span(ms: int | None) -> str:
    """Return a time span in its two greatest units: `3 d 4 h`."""
    if ms is None:
        return ""
    if 0 < ms < 1000:
        return f"{ms} ms"
    seconds = max(0, ms // 1000)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= size or (unit == "s" and not parts):
            parts.append(f"{seconds // size} {unit}")
        elif parts:
            break
        seconds %= size
    return " ".join(parts[:2])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 topic`, `2 topics`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
