"""delta_schema_history.yaml: which version of the messages' schema became valid at which tid.

    schemas:
    - {version: 1, tid: 0, schema: {person: [name]}}
    - {version: 2, tid: 150, change: add person.age, schema: {person: [name, age]}}

A version is valid from its `tid` on. Versions and tids rise; `change` and `schema` are the engine's own.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "delta_schema_history.yaml"
_FIELDS = frozenset({"version", "tid", "change", "schema"})
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the schema; `change` and `schema` as JSON text, None when absent."""

    version: int
    tid: int
    change: str | None
    schema: str | None


def parse(text: str | bytes, where: str = NAME) -> tuple[Version, ...]:
    """The versions of the file `where`, in order. Raises UsageProblem with what is wrong."""
    found: list[Version] = []
    for number, entry in enumerate(_entries(_load(text, where), where), 1):
        at = f"{where}, entry {number} of schemas"
        if not isinstance(entry, dict) or not {"version", "tid"} <= entry.keys() <= _FIELDS:
            raise UsageProblem(f"{at}: version and tid are needed; change and schema may be there.")
        version, tid = entry["version"], entry["tid"]
        if any(type(value) is not int or not 0 <= value < 2**63 for value in (version, tid)):
            raise UsageProblem(f"{at}: version {version!r} and tid {tid!r} must be numbers from 0 on.")
        if found and (version <= found[-1].version or tid <= found[-1].tid):
            raise UsageProblem(
                f"{at}: version {version} at tid {tid} comes behind version {found[-1].version} at tid "
                f"{found[-1].tid}; both must rise."
            )
        texts = [_json(entry.get(name), f"{at}: {name}") for name in ("change", "schema")]
        found.append(Version(version, tid, *texts))
    return tuple(found)


def cut(text: bytes, upto_tid: int, where: str = NAME) -> bytes:
    """The file without the versions that became valid after a tid; the same bytes when there are none."""
    versions = parse(text, where)
    kept = sum(version.tid <= upto_tid for version in versions)
    if kept == len(versions):
        return text
    content = _load(text, where)
    content["schemas"] = content["schemas"][:kept]
    # In ASCII: PyYAML writes some line breaks of Unicode (such as U+0085) so that they are read as a space.
    made: str = yaml.safe_dump(content, sort_keys=False)
    return made.encode()


def unlike(versions: Iterable[Version], before: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """The first (version, tid) of an earlier history that a later one does not have; None when it has all."""
    there = {(version.version, version.tid) for version in versions}
    return next((one for one in before if one not in there), None)


def _load(text: str | bytes, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        # Not all of them are YAMLErrors: a date that there is not, a key that is a list.
        raise UsageProblem(f"{where} is not YAML: {' '.join(str(error).split())}.") from None


def _entries(content: Any, where: str) -> list[Any]:
    if not isinstance(content, dict) or not isinstance(content.get("schemas"), list):
        raise UsageProblem(
            f"{where} has no list `schemas`.", hint="Write `schemas: [{version: 1, tid: 0, schema: …}, …]`."
        )
    entries: list[Any] = content["schemas"]
    return entries


def _json(value: Any, at: str) -> str | None:
    try:
        return None if value is None else json.dumps(_plain(value), ensure_ascii=False, default=str)
    except RecursionError:
        raise UsageProblem(f"{at} is nested too deeply, or in itself.") from None


def _plain(value: Any) -> Any:
    """What JSON has of it. YAML's keys may be numbers, dates and truths (`on` is one): in order, as text."""
    if isinstance(value, dict):
        of = {_key(key): inner for key, inner in value.items()}
        return {key: _plain(of[key]) for key in sorted(of)}
    if isinstance(value, set):
        return sorted(map(_key, value))
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _key(key: Any) -> str:
    return json.dumps(key) if key is None or isinstance(key, bool) else str(key)
