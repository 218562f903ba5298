"""Parse and check the values of flags."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from pydantic import ByteSize, TypeAdapter, ValidationError

from lakebackup.config import Settings
from lakebackup.errors import UsageProblem
from lakebackup.rules.times import LocalTime, format_ts, parse_duration, read_time, time_zone
from lakebackup.store.reader import CatalogReader

T = TypeVar("T")
TARGETS = "kafka://HOST:PORT[,HOST:PORT] | delta:PATH | dir:PATH"
"""Help text: the targets of a restore."""
FILE_TARGETS = "csv:FILE | json:FILE | parquet:FILE"
"""Help text: the files that a restore of topics can write."""
_SCHEMES = ("kafka://", "delta:", "dir:")
_FILE_SCHEMES = ("csv:", "json:", "parquet:")


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """Put the flag's name in front of the message of a UsageProblem that the block raises."""
    try:
        yield
    except UsageProblem as problem:
        raise UsageProblem(f"{flag} {problem.message}", hint=problem.hint) from None


def instant(text: str) -> int | LocalTime:
    """Parse a time to ms since 1970 UTC. A day or a time of day alone becomes a LocalTime."""
    return read_time(text, now_ms())


class SourceCall(Protocol):
    """What is needed of a call to know its source; `lakebackup_jobs.cli.verb.Call` describes it."""

    flags: Mapping[str, Any]
    own: Mapping[str, Any]

    @property
    def settings(self) -> Settings: ...
    @property
    def repository_and_catalog(self) -> Any: ...
    def note(self, text: str) -> None: ...


def in_policy_zone(call: SourceCall, flag: str, moment: LocalTime) -> int:
    """The instant, in ms since 1970 UTC, of a flag's day or time of day without a zone.

    It is read in the time zone of the source's policy, or in UTC. A note on standard error names the zone.
    """
    zone, zone_origin = _policy_zone(call)
    instant_ms = moment.to_ms(time_zone(zone), now_ms())
    call.note(f"{flag} {moment.text!r} is {format_ts(instant_ms)}: read in {zone or 'UTC'}{zone_origin}.")
    return instant_ms


def _policy_zone(call: SourceCall) -> tuple[str | None, str]:
    """The time zone of the policy of the source that a call names, and a text that says whose zone it is.

    If the call names no source, it is the zone in which all policies agree. None means no zone.
    """
    reader = CatalogReader.open(*call.repository_and_catalog) if call.settings.repo else None
    rows = reader.rows("list_policies", source=None) if reader else []
    zones = {str(row["source"]): row["time_zone"] for row in rows}
    own_values = (call.own.get(name) for name in ("name", "source", "graph"))
    sources = [call.flags.get("source"), *own_values, call.settings.source]
    for source in sources:
        if source and (zone := zones.get(source)):
            return zone, f", the time zone of the policy of {source}"
    if not any(sources) and len(agreed := set(zones.values())) == 1 and (zone := agreed.pop()):
        return zone, ", the time zone of all policies"
    return None, ""


def now_ms() -> int:
    """The present time in ms since 1970 UTC."""
    return time.time_ns() // 1_000_000


def span(flag: str, text: str | None) -> int | None:
    """A duration such as `7d` in ms; None for None. Raises UsageProblem."""
    with naming(flag):
        return None if text is None else parse_duration(text)


def size(flag: str, text: str | None) -> int | None:
    """A size such as `10GiB` in bytes; None for None. Raises UsageProblem."""
    try:
        return None if text is None else int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise UsageProblem(f"{flag} {text!r} is not a size.", hint="Write 500MB, 128MiB, 10GiB.") from None


def address(flag: str, text: str) -> tuple[str, int]:
    """The host and the port of an address such as `127.0.0.1:8090` or `[::1]:8090`. Raises UsageProblem."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageProblem(f"{flag} {text!r} is not an address.", hint="Write HOST:PORT: 127.0.0.1:8090.")
    return host, int(port)


def one_of(flags: Mapping[str, bool], otherwise: str) -> str:
    """The name of the flag that is set, or `otherwise`. Raises UsageProblem if several are."""
    set_flags = [name for name, is_set in flags.items() if is_set]
    if len(set_flags) > 1:
        names = " and ".join(f"--{name}" for name in set_flags)
        raise UsageProblem(f"{names} exclude each other.", hint="Give one of them.")
    return set_flags[0] if set_flags else otherwise


def required(value: T | None, flag: str, question: str, *, hint: str) -> T:
    """The value of a required flag. Raises UsageProblem when it is missing."""
    if not value:
        raise UsageProblem(f"Missing {flag}: {question}", hint=hint)
    return value


def check_folder(flag: str, value: str | None, question: str) -> str:
    """The folder that a required flag names, without `dir:`.

    Raises UsageProblem when the flag is missing or names another kind of target.
    """
    hint = f"Give {flag} FOLDER."
    target = required(value, flag, question, hint=hint)
    path = target.removeprefix("dir:")
    if not path or path.startswith((*_SCHEMES, *_FILE_SCHEMES)):
        raise UsageProblem(f"{flag} {target!r} is not a folder.", hint=hint)
    return path


def check_target(to: str | None, *, files: bool = False) -> str:
    """The value of --to. Raises UsageProblem when a restore cannot write there.

    `files`: the restore can also write one file of rows.
    """
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
