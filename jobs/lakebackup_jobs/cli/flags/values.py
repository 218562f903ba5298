"""Parse and check the values of flags."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from lakebackup.errors import UsageProblem
from lakebackup.rules.times import LocalTime, format_ts, read_time, time_zone

if TYPE_CHECKING:
    from lakebackup_jobs.cli.verb import Call

T = TypeVar("T")
TARGETS = "kafka://HOST:PORT[,HOST:PORT] | delta:PATH | dir:PATH"
"""Help text: the targets of a restore."""
FILE_TARGETS = "csv:FILE | json:FILE | parquet:FILE"
"""Help text: the files that a restore of topics can write."""
_SCHEMES = ("kafka://", "delta:", "dir:")
_FILE_SCHEMES = ("csv:", "json:", "parquet:")


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """A UsageProblem of the block says first which flag it is about."""
    try:
        yield
    except UsageProblem as problem:
        raise UsageProblem(f"{flag} {problem.message}", hint=problem.hint) from None


def instant(text: str) -> int | LocalTime:
    """A time in ms since 1970 UTC; a day or a time of day alone as it is, for `in_policy_zone`."""
    return read_time(text, now_ms())


def in_policy_zone(call: Call, flag: str, moment: LocalTime) -> int:
    """The instant in ms since 1970 UTC of a time that a flag gives without a date and a zone.

    It is in the time zone of the source's policy, or UTC, which is said on standard error.
    """
    zone, whose = _policy_zone(call)
    instant_ms = moment.at(time_zone(zone), now_ms())
    call.note(f"{flag} {moment.text!r} is {format_ts(instant_ms)}: read in {zone or 'UTC'}{whose}.")
    return instant_ms


def _policy_zone(call: Call) -> tuple[str | None, str]:
    """The time zone of the policy of the source that a call names, and whose it is, in words. A call that
    names none has the zone in which all policies agree."""
    from lakebackup.store.reader import CatalogReader

    reader = CatalogReader.open(*call.places) if call.settings.repo else None
    rows = reader.rows("list_policies", source=None) if reader else []
    zones = {str(row["source"]): row["time_zone"] for row in rows}
    own = (call.own.get(name) for name in ("name", "source", "graph"))
    named = [call.flags.get("source"), *own, call.settings.source]
    for source in named:
        if source and (zone := zones.get(source)):
            return zone, f", the time zone of the policy of {source}"
    if not any(named) and len(agreed := set(zones.values())) == 1 and (zone := agreed.pop()):
        return zone, ", the time zone of all policies"
    return None, ""


def now_ms() -> int:
    """The present, in ms since 1970 UTC."""
    return time.time_ns() // 1_000_000


def span(flag: str, text: str | None) -> int | None:
    """A duration such as `7d` in ms; None for None. Raises UsageProblem."""
    from lakebackup.rules.times import parse_duration

    with naming(flag):
        return None if text is None else parse_duration(text)


def size(flag: str, text: str | None) -> int | None:
    """A size such as `10GiB` in bytes; None for None. Raises UsageProblem."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return None if text is None else int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise UsageProblem(f"{flag} {text!r} is not a size.", hint="Write 500MB, 128MiB, 10GiB.") from None


def one_of(flags: Mapping[str, bool], otherwise: str) -> str:
    """The name of the flag that is set, or `otherwise`. Raises UsageProblem if several are."""
    given = [name for name, is_set in flags.items() if is_set]
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        raise UsageProblem(f"{names} exclude each other.", hint="Give one of them.")
    return given[0] if given else otherwise


def required(value: T | None, flag: str, question: str, *, hint: str) -> T:
    """The value of a required flag. Raises UsageProblem without one."""
    if not value:
        raise UsageProblem(f"Missing {flag}: {question}", hint=hint)
    return value


def check_folder(flag: str, value: str | None, question: str) -> str:
    """The folder that a required flag names, without `dir:`. Raises UsageProblem, for other targets too."""
    hint = f"Give {flag} FOLDER."
    named = required(value, flag, question, hint=hint)
    path = named.removeprefix("dir:")
    if not path or path.startswith((*_SCHEMES, *_FILE_SCHEMES)):
        raise UsageProblem(f"{flag} {named!r} is not a folder.", hint=hint)
    return path


def check_target(to: str | None, *, files: bool = False) -> str:
    """The value of --to, if a restore can write there; `files`: into one file too. Raises UsageProblem."""
    targets = f"{TARGETS} | {FILE_TARGETS}" if files else TARGETS
    target = required(to, "--to", "where do the records go?", hint=f"Give --to {targets}.")
    file_scheme = next((scheme for scheme in _FILE_SCHEMES if target.startswith(scheme)), None)
    if file_scheme and not files:
        raise UsageProblem(
            f"--to {target!r}: only `restore topics` writes a {file_scheme.rstrip(':')} file.",
            hint=f"Give {targets}.",
        )
    scheme = file_scheme or next((scheme for scheme in _SCHEMES if target.startswith(scheme)), None)
    if scheme is None or len(target) == len(scheme):
        raise UsageProblem(
            f"--to {target!r} is not a target of a restore.",
            hint=f"Give {targets}. (Where the backups are is --repo.)",
        )
    return target
