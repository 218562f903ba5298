"""Times, spans and numbers as the report and its charts write them."""

from __future__ import annotations

from lakebackup.rules.times import format_ts


def day(ms: int) -> str:
    """The day (UTC) of an instant."""
    return f"{format_ts(ms)[:10]} UTC"


def moment(ms: int) -> str:
    """An instant to the minute, with its zone; the bare number where no calendar reaches."""
    text = format_ts(ms)
    return f"{text[:10]} {text[11:16]} UTC" if text.endswith("Z") else text


def span(ms: int | None) -> str:
    """A span in its two greatest units: `3 d 4 h`."""
    if ms is None:
        return ""
    if 0 < ms < 1000:
        return f"{ms} ms"
    seconds = max(0, ms // 1000)
    found: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= size or (unit == "s" and not found):
            found.append(f"{seconds // size} {unit}")
        elif found:
            break
        seconds %= size
    return " ".join(found[:2])


def counted(number: int, what: str) -> str:
    """A number with what it counts: `1 topic`, `2 topics`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
