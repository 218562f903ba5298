"""From the text of a flag to its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lakebackup.errors import UsageProblem

T = TypeVar("T")
TARGETS = "kafka://HOST:PORT[,HOST:PORT] | delta:PATH | dir:PATH"
"""Help on the places that a restore can write to."""
_SCHEMES = ("kafka://", "delta:", "dir:")


def instant(text: str | None) -> int | None:
    """A time flag in ms since 1970 UTC; None stays None."""
    if text is None:
        return None
    import time

    from lakebackup.rules.times import parse_time

    return parse_time(text, now=time.time_ns() // 1_000_000)


def span(text: str | None) -> int | None:
    """A flag such as `7d` in ms; None stays None."""
    from lakebackup.rules.times import parse_duration

    return None if text is None else parse_duration(text)


def size(flag: str, text: str | None) -> int | None:
    """A flag such as `10GiB` in bytes; None stays None. Raises UsageProblem."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return None if text is None else int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise UsageProblem(f"{flag} {text!r} is not a size.", hint="Write 500MB, 128MiB, 10GiB.") from None


def one_of(flags: Mapping[str, bool], otherwise: str) -> str:
    """The name of the flag that is set, or `otherwise`. Raises UsageProblem for two."""
    given = [name for name, is_set in flags.items() if is_set]
    if len(given) > 1:
        raise UsageProblem(f"{' and '.join(f'--{name}' for name in given)} exclude each other.")
    return given[0] if given else otherwise


def required(value: T | None, flag: str, question: str, *, hint: str) -> T:
    """The value of a flag that has to be given. Raises UsageProblem without one."""
    if not value:
        raise UsageProblem(f"Missing {flag}: {question}", hint=hint)
    return value


def check_target(to: str | None) -> str:
    """--to when it has one of the forms that a restore can write to. Raises UsageProblem."""
    target = required(to, "--to", "where do the records go?", hint=f"Give --to {TARGETS}.")
    scheme = next((scheme for scheme in _SCHEMES if target.startswith(scheme)), None)
    if scheme is None or len(target) == len(scheme):
        raise UsageProblem(
            f"--to {target!r} is not a place to restore to.",
            hint=f"Give {TARGETS}. (Where the backups are is --from.)",
        )
    return target
