"""Read manifests of snapshots that other tools wrote, as a stream. Nothing in them is trusted.

The format is that of `manifest_json`. Files must have `location` and `timestamp`. Unknown keys are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NoReturn, TextIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lakebackup.errors import UsageProblem
from lakebackup.formats.snapshots.compression import Codec
from lakebackup.formats.snapshots.names import Limits, unsafe

_READ_CHARS = 1 << 20
# The most characters of a name, and of the object that describes a file.
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
    codec: Codec = "none"
    stored_size: Annotated[int | None, Field(ge=0, lt=1 << 53)] = None
    key_id: Annotated[str | None, Field(pattern="^[0-9a-f]{16}$")] = None

    @model_validator(mode="after")
    def _require_sizes(self) -> Entry:
        if self.codec != "none" and None in (self.bytes, self.stored_size):
            raise ValueError(f"it has codec {self.codec}, so it needs size and stored_size")
        if self.key_id is not None and None in (self.bytes, self.sha256):
            raise ValueError("it is encrypted, so it needs size and sha256")
        return self

    @property
    def stored_bytes(self) -> int | None:
        """How many bytes of the object the file takes; None: all up to the object's end."""
        return self.bytes if self.codec == "none" else self.stored_size


def read_manifest_json(stream: TextIO) -> Iterator[Entry | str]:
    """Yield the files of a manifest in its order; for an invalid file, a text that says why it is invalid.

    Memory holds only the names of one tablet. Raises UsageProblem, with the position, for another format.
    """
    text = _JsonStream(stream)
    for scope in text.members("the manifest"):
        for region in text.members(f"table {scope!r:.80}"):
            for name in text.members(f"tablet {region!r:.80}"):
                yield _entry(scope, region, name, text.object())
    text.end()


def resolve(location: str, roots: Mapping[str, str], home: str) -> tuple[str, str] | str:
    """Return the destination that contains `location` and the path in it, or a text that says why none does.

    `roots`: destination id -> URI. A relative location is a path in the destination `home`.
    """
    uri = re.sub("^s3a://", "s3://", f"file://{location}" if location.startswith("/") else location)
    if "://" not in uri:
        resolved = (home, uri)
    else:
        roots_above = [
            (len(root), name) for name, root in roots.items() if uri.startswith(f"{root.rstrip('/')}/")
        ]
        if not roots_above:
            return f"{location!r:.200} is in no repository that the catalog knows"
        name = max(roots_above)[1]
        resolved = (name, uri[len(roots[name].rstrip("/")) + 1 :])
    problem = unsafe(resolved[1], _NO_LIMIT) or ("it has '..'" if ".." in resolved[1] else None)
    return f"{location!r:.200} cannot be the location of an object: {problem}" if problem else resolved


def _entry(scope: str, region: str, name: str, values: Mapping[str, Any]) -> Entry | str:
    for kind, part in (("table", scope), ("tablet", region), ("file", name)):
        problem = unsafe(part, _NO_LIMIT) or ("it has '/'" if kind != "file" and "/" in part else None)
        if problem:
            return f"{part!r:.200} cannot be the name of a {kind}: {problem}"
    try:
        return Entry.model_validate({**values, "scope": scope, "region": region, "name": name})
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        message = first_error["msg"]
        if not first_error["loc"]:  # it is about several keys
            return f"{scope}/{region}/{name:.200}: {message}"
        key = str(first_error["loc"][0])
        return f"{scope}/{region}/{name:.200}: its {key} is {values.get(key)!r:.60}: {message}"


class _JsonStream:
    """Parses JSON from a stream with a small buffer. All methods raise UsageProblem for another format."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._buffer, self._offset, self._consumed = stream, "", 0, 0
        self._decoder = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)

    def members(self, of: str) -> Iterator[str]:
        """Yield the keys of the next object. The caller reads the value after each key. Duplicates fail."""
        self._expect("{", of)
        names: set[str] = set()
        if self._peek() == "}":
            self._offset += 1
            return
        while True:
            if self._peek() != '"':
                self._fail(f"a name in {of} is expected")
            name: str = self._value(of)
            if name in names:
                self._fail(f"{of} has {name!r:.80} twice")
            names.add(name)
            self._expect(":", of)
            yield name
            if self._peek() == "}":
                self._offset += 1
                return
            self._expect(",", of)

    def object(self) -> dict[str, Any]:
        """Read the next value, an object that describes a file."""
        if self._peek() != "{":
            self._fail("an object that describes a file is expected")
        attributes: dict[str, Any] = self._value("a file")
        return attributes

    def end(self) -> None:
        """Fail if more text follows."""
        if self._peek():
            self._fail("the manifest has ended, and more follows")

    def _value(self, context: str) -> Any:
        while True:
            try:
                value, self._offset = self._decoder.raw_decode(self._buffer, self._offset)
            except json.JSONDecodeError as error:
                if len(self._buffer) - self._offset > _MAX_CHARS:
                    self._fail(f"{context} has a value that is not JSON or has over {_MAX_CHARS} characters")
                if not self._read_more():
                    self._fail(f"{error.msg} in {context}", error.pos)
            except (ValueError, RecursionError) as error:
                self._fail(f"{context}: {error}")
            else:
                return value

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end of the stream."""
        while True:
            spaces = _SPACE.match(self._buffer, self._offset)
            self._offset = spaces.end() if spaces else self._offset
            if self._offset < len(self._buffer):
                return self._buffer[self._offset]
            if not self._read_more():
                return ""

    def _expect(self, symbol: str, context: str) -> None:
        if self._peek() != symbol:
            self._fail(f"{symbol!r} is expected in {context}")
        self._offset += 1

    def _read_more(self) -> bool:
        self._consumed += self._offset
        try:
            piece = self._stream.read(_READ_CHARS)
        except UnicodeDecodeError:
            self._fail("the text is not UTF-8")
        self._buffer, self._offset = self._buffer[self._offset :] + piece, 0
        return bool(piece)

    def _fail(self, problem: str, offset: int | None = None) -> NoReturn:
        position = self._consumed + (self._offset if offset is None else offset) + 1
        raise UsageProblem(
            f"This is not a manifest of a snapshot: {problem} (character {position}).",
            hint='It should be like {"table": {"tablet": {"file": {"location": "…", "timestamp": 0}}}}.',
        )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
