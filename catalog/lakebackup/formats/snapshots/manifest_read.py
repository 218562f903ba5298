"""Reads manifests of snapshots written by other tools as a stream. Nothing in them is trusted.

The format is that of `manifest_json`. Files must have `location` and `timestamp`; unknown keys are ignored.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakebackup.errors import UsageProblem
from lakebackup.formats.snapshots.names import Limits, unsafe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

_READ_CHARS = 1 << 20
# Characters in a name, or in the object that describes a file.
_MAX_CHARS = 1 << 16
# The year 10000, in ms since 1970 UTC.
_TIME_LIMIT_MS = 253_402_300_800_000
_SPACE = re.compile(r"[ \t\r\n]*")
_NO_LIMIT = Limits(name=_MAX_CHARS, path=_MAX_CHARS)


class Entry(BaseModel):
    """A file of a manifest: its path in the snapshot, its location and its attributes."""

    model_config = ConfigDict(frozen=True, strict=True)

    scope: str
    region: str
    name: str
    location: Annotated[str, Field(min_length=1)]
    mtime_ms: Annotated[int, Field(alias="timestamp", ge=0, lt=_TIME_LIMIT_MS)]
    links: Annotated[int, Field(alias="version", ge=1, lt=1 << 31)] = 1
    bytes: Annotated[int | None, Field(alias="size", ge=0, lt=1 << 53)] = None
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    mode: Annotated[int, Field(ge=0, lt=0o10000)] = 0o644
    position: Annotated[int, Field(alias="offset", ge=0, lt=1 << 53)] = 0
    role: Literal["data", "meta", "schema", "config"] = "data"


def read_manifest_json(stream: TextIO) -> Iterator[Entry | str]:
    """The files of a manifest, in its order; for an invalid one, a text that says why.

    Memory holds only the names of one tablet. Raises UsageProblem, with the position, for another format.
    """
    text = _JsonStream(stream)
    for scope in text.members("the manifest"):
        for region in text.members(f"table {scope!r:.80}"):
            for name in text.members(f"tablet {region!r:.80}"):
                yield _entry(scope, region, name, text.object())
    text.end()


def resolve(location: str, roots: Mapping[str, str], home: str) -> tuple[str, str] | str:
    """The destination that contains `location`, and the path in it; or a text that says why there is none.

    `roots`: destination id -> URI. A relative location is a path in the destination `home`.
    """
    uri = re.sub("^s3a://", "s3://", f"file://{location}" if location.startswith("/") else location)
    if "://" not in uri:
        found = (home, uri)
    else:
        below = [(len(root), name) for name, root in roots.items() if uri.startswith(f"{root.rstrip('/')}/")]
        if not below:
            return f"{location!r:.200} is in no repository that the catalog knows"
        name = max(below)[1]
        found = (name, uri[len(roots[name].rstrip("/")) + 1 :])
    why = unsafe(found[1], _NO_LIMIT) or ("it has '..'" if ".." in found[1] else None)
    return f"{location!r:.200} cannot be the location of an object: {why}" if why else found


def _entry(scope: str, region: str, name: str, values: Mapping[str, Any]) -> Entry | str:
    for kind, part in (("table", scope), ("tablet", region), ("file", name)):
        why = unsafe(part, _NO_LIMIT) or ("it has '/'" if kind != "file" and "/" in part else None)
        if why:
            return f"{part!r:.200} cannot be the name of a {kind}: {why}"
    try:
        return Entry.model_validate({**values, "scope": scope, "region": region, "name": name})
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = str(wrong["loc"][0])
        return f"{scope}/{region}/{name:.200}: its {key} is {values.get(key)!r:.60}: {wrong['msg']}"


class _JsonStream:
    """Parses JSON from a stream with a small buffer."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._buffer, self._offset, self._consumed = stream, "", 0, 0
        self._decoder = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)

    def members(self, of: str) -> Iterator[str]:
        """The keys of the next object; the caller reads the value after each key. Fails on duplicates."""
        self._expect("{", of)
        seen: set[str] = set()
        if self._peek() == "}":
            self._offset += 1
            return
        while True:
            if self._peek() != '"':
                self._fail(f"a name in {of} is expected")
            name: str = self._value(of)
            if name in seen:
                self._fail(f"{of} has {name!r:.80} twice")
            seen.add(name)
            self._expect(":", of)
            yield name
            if self._peek() == "}":
                self._offset += 1
                return
            self._expect(",", of)

    def object(self) -> dict[str, Any]:
        """The next value: an object, which describes a file."""
        if self._peek() != "{":
            self._fail("an object that describes a file is expected")
        found: dict[str, Any] = self._value("a file")
        return found

    def end(self) -> None:
        """Fail when more text follows."""
        if self._peek():
            self._fail("the manifest has ended, and more follows")

    def _value(self, of: str) -> Any:
        while True:
            try:
                value, self._offset = self._decoder.raw_decode(self._buffer, self._offset)
            except json.JSONDecodeError as error:
                if len(self._buffer) - self._offset > _MAX_CHARS:
                    self._fail(f"{of} has a value that is not JSON or has over {_MAX_CHARS} characters")
                if not self._read_more():
                    self._fail(f"{error.msg} in {of}", error.pos)
            except (ValueError, RecursionError) as error:
                self._fail(f"{of}: {error}")
            else:
                return value

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            found = _SPACE.match(self._buffer, self._offset)
            self._offset = found.end() if found else self._offset
            if self._offset < len(self._buffer):
                return self._buffer[self._offset]
            if not self._read_more():
                return ""

    def _expect(self, symbol: str, of: str) -> None:
        if self._peek() != symbol:
            self._fail(f"{symbol!r} is expected in {of}")
        self._offset += 1

    def _read_more(self) -> bool:
        self._consumed += self._offset
        try:
            piece = self._stream.read(_READ_CHARS)
        except UnicodeDecodeError:
            self._fail("the text is not UTF-8")
        self._buffer, self._offset = self._buffer[self._offset :] + piece, 0
        return bool(piece)

    def _fail(self, why: str, at: int | None = None) -> NoReturn:
        place = self._consumed + (self._offset if at is None else at) + 1
        raise UsageProblem(
            f"This is not a manifest of a snapshot: {why} (character {place}).",
            hint='It should be like {"table": {"tablet": {"file": {"location": "…", "timestamp": 0}}}}.',
        )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
