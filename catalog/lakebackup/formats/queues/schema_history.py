"""Read delta_schema_history.yaml: which version of the messages' schema became valid at which tid.

    schemas:
    - {version: 1, tid: 0, schema: {person: [name]}}
    - {version: 2, tid: 150, change: add person.age, schema: {person: [name, age]}}

A version is valid from its `tid` on. Versions and tids rise. Only the engine knows the meaning of `change`
and `schema`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from lakebackup.errors import UsageProblem

NAME = "delta_schema_history.yaml"
_FIELDS = frozenset({"version", "tid", "change", "schema"})
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the schema. `change` and `schema` are JSON texts, or None when absent."""

    version: int
    tid: int
    change: str | None
    schema: str | None


def parse(text: str | bytes, file_name: str = NAME) -> tuple[Version, ...]:
    """Return the versions in the content of the file `file_name`, in order. Raises UsageProblem, which says
    what is wrong."""
    versions: list[Version] = []
    for number, entry in enumerate(_entries(_load(text, file_name), file_name), 1):
        entry_name = f"{file_name}, entry {number} of schemas"
        if not isinstance(entry, dict) or not {"version", "tid"} <= entry.keys() <= _FIELDS:
            raise UsageProblem(f"{entry_name}: version and tid are needed; change and schema may be there.")
        version, tid = entry["version"], entry["tid"]
        if any(type(value) is not int or not 0 <= value < 2**63 for value in (version, tid)):
            raise UsageProblem(
                f"{entry_name}: version {version!r} and tid {tid!r} must be numbers from 0 on."
            )
        if versions and (version <= versions[-1].version or tid <= versions[-1].tid):
            raise UsageProblem(
                f"{entry_name}: version {version} at tid {tid} comes behind version {versions[-1].version} "
                f"at tid {versions[-1].tid}; both must rise."
            )
        texts = [_json(entry.get(name), f"{entry_name}: {name}") for name in ("change", "schema")]
        versions.append(Version(version, tid, *texts))
    return tuple(versions)


def cut(text: bytes, upto_tid: int, file_name: str = NAME) -> bytes:
    """The file without the versions that became valid after `upto_tid`. Unchanged bytes if there are none."""
    versions = parse(text, file_name)
    valid_count = sum(version.tid <= upto_tid for version in versions)
    if valid_count == len(versions):
        return text
    content = _load(text, file_name)
    content["schemas"] = content["schemas"][:valid_count]
    # As ASCII, because PyYAML would write some Unicode line breaks (U+0085) so that they are read as a space.
    new_text: str = yaml.safe_dump(content, sort_keys=False)
    return new_text.encode()


def unlike(versions: Iterable[Version], earlier: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """The first (version, tid) of an earlier history that `versions` lacks; None if it has all of them."""
    pairs = {(version.version, version.tid) for version in versions}
    return next((pair for pair in earlier if pair not in pairs), None)


def _load(text: str | bytes, file_name: str) -> Any:
    try:
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        # PyYAML raises errors of other types for an impossible date or a key that is a list.
        raise UsageProblem(f"{file_name} is not YAML: {' '.join(str(error).split())}.") from None


def _entries(content: Any, file_name: str) -> list[Any]:
    if not isinstance(content, dict) or not isinstance(content.get("schemas"), list):
        raise UsageProblem(
            f"{file_name} has no list `schemas`.",
            hint="Write `schemas: [{version: 1, tid: 0, schema: …}, …]`.",
        )
    entries: list[Any] = content["schemas"]
    return entries


def _json(value: Any, value_name: str) -> str | None:
    try:
        return None if value is None else json.dumps(_plain(value), ensure_ascii=False, default=str)
    except RecursionError:
        raise UsageProblem(f"{value_name} is nested too deeply, or in itself.") from None


def _plain(value: Any) -> Any:
    """The value in types that JSON has. Keys of YAML may be numbers, dates or booleans (`on`): they become
    sorted text."""
    if isinstance(value, dict):
        values_by_key = {_key(key): inner for key, inner in value.items()}
        return {key: _plain(values_by_key[key]) for key in sorted(values_by_key)}
    if isinstance(value, set):
        return sorted(map(_key, value))
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _key(key: Any) -> str:
    return json.dumps(key) if key is None or isinstance(key, bool) else str(key)
