"""Words, sizes and times in the sentences about results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakebackup.rules.times import format_ts
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted, span

NOTHING_WRITTEN = "Nothing was written: this was a dry run."
_MAX_NAMES = 8
# A larger number is not ms since 1970 but a ts of a timestamp oracle, with the ms in the upper bits.
_ORACLE = 1 << 48


def amount(count: int | None, unit: str, size: int | None) -> str:
    """A number of things and their size: `120,000 records, 9.8 MB`."""
    parts = [] if count is None else [counted(count, unit)]
    return ", ".join(parts if size is None else [*parts, human_bytes(size)])


def duration(seconds: float | None) -> str:
    """A time taken, with a space and `in` before it: ` in 3.1 s`. Empty when it is unknown."""
    if seconds is None:
        return ""
    return f" in {span(round(seconds) * 1000)}" if seconds >= 60 else f" in {seconds:.1f} s"


def moment(value: int | str | None) -> str:
    """The text of an instant (ms since 1970, or text of `format_ts`), such as `2026-11-21 14:05:00 UTC`."""
    if value is None or value == "":
        return ""
    if isinstance(value, int):
        value = format_ts(value if value < _ORACLE else value >> 18)
    return f"{value[:10]} {value[11:19]} UTC" if value.endswith("Z") and value[10:11] == "T" else value


def as_of(value: int | str | None) -> str:
    """A clause such as `, as of 2026-11-21 14:05:00 UTC`. Empty when there is no instant."""
    return f", as of {moment(value)}" if value not in (None, "") else ""


def listed(names: Iterable[str], most: int = _MAX_NAMES) -> str:
    """Names in a sentence: `a, b and c`, or the first `most` and the number of the others."""
    all_names = [*names]
    first_names = all_names[:most] if len(all_names) > most else all_names[:-1]
    last = f"{len(all_names) - most:,} more" if len(all_names) > most else "".join(all_names[-1:])
    return f"{', '.join(first_names)} and {last}" if first_names else last


def renamed(name: str, target: str | None) -> str:
    """A restored name, with its new name if that differs: `orders to orders-then`."""
    return name if target in (None, name) else f"{name} to {target}"


def place_text(target: str) -> str:
    """The text for a target: a folder's path, `the Delta table` and its path, or a cluster's address."""
    scheme, _, path = target.partition(":")
    return {"dir": path, "delta": f"the Delta table {path}"}.get(scheme, target)


def backup(values: Mapping[str, Any]) -> str:
    """The kind and the id of a backup: `full backup 20261121T140500Z-00000001`."""
    kind = values.get("kind")
    return f"{kind} backup {values['backup_id']}" if kind else f"backup {values['backup_id']}"


def several(values: Sequence[Any]) -> Sequence[Any] | None:
    """The rows of a table, or None for at most one row, which a sentence describes."""
    return values if len(values) > 1 else None


def is_or_are(number: int) -> str:
    """The verb after a number of things."""
    return "is" if number == 1 else "are"
