"""Manifests of snapshots that other tools wrote, read piece by piece. Nothing in them is trusted.

The form is that of `manifest_json`; a file needs `location` and `timestamp`, and keys that are not known are
passed over.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from lakebackup.errors import UsageProblem
from lakebackup.formats.snapshots.names import Limits, unsafe
from lakebackup.rows.tables import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

_PIECE = 1 << 20
# Of a name, or of what is said of one file, in characters.
_LONGEST = 1 << 16
# The year 10000, ms since 1970 UTC.
_BEYOND_MS = 253_402_300_800_000
_SPACE = re.compile(r"[ \t\r\n]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ROLES = next(column.choices for column in columns("snapshot_files") if column.name == "role")
_NO_LIMIT = Limits(name=_LONGEST, path=_LONGEST)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a manifest: its place in the snapshot, where its bytes are, and what is known of it."""

    scope: str
    region: str
    name: str
    location: str
    mtime_ms: int
    links: int = 1
    bytes: int | None = None
    sha256: str | None = None
    mode: int = 0o644
    position: int = 0
    role: str = "data"


def read_manifest_json(stream: TextIO) -> Iterator[Entry | str]:
    """The files of a manifest, in its order; a text says what is wrong with one of them.

    Holds the names of one tablet, no more. Raises UsageProblem when it is no such manifest, with the number
    of the character.
    """
    text = _Text(stream)
    for scope in text.members("the manifest"):
        for region in text.members(f"table {scope!r:.80}"):
            for name in text.members(f"tablet {region!r:.80}"):
                yield _entry(scope, region, name, text.object())
    text.end()


def resolve(location: str, roots: Mapping[str, str], home: str) -> tuple[str, str] | str:
    """The destination whose root `location` lies below, and the path there; a text says why there is none.

    `roots`: id -> URI of each destination; a location without a scheme is relative to that called `home`.
    """
    uri = re.sub("^s3a://", "s3://", f"file://{location}" if location.startswith("/") else location)
    if "://" not in uri:
        found = (home, uri)
    else:
        below = [(len(root), name) for name, root in roots.items() if uri.startswith(f"{root.rstrip('/')}/")]
        if not below:
            return f"{location!r:.200} lies in no destination that the catalog knows"
        name = max(below)[1]
        found = (name, uri[len(roots[name].rstrip("/")) + 1 :])
    why = unsafe(found[1], _NO_LIMIT) or ("it has '..'" if ".." in found[1] else None)
    return f"{location!r:.200} cannot be an object's place: {why}" if why else found


def _entry(scope: str, region: str, name: str, said: Mapping[str, Any]) -> Entry | str:
    for kind, part in (("table", scope), ("tablet", region), ("file", name)):
        why = unsafe(part, _NO_LIMIT) or ("it has '/'" if kind != "file" and "/" in part else None)
        if why:
            return f"{part!r:.200} cannot be the name of a {kind}: {why}"
    values = {
        "location": said.get("location"),
        "mtime_ms": said.get("timestamp"),
        "links": said.get("version", 1),
        "bytes": said.get("size"),
        "sha256": said.get("sha256"),
        "mode": said.get("mode", 0o644),
        "position": said.get("offset", 0),
        "role": said.get("role", "data"),
    }
    why = _wrong(values)
    return f"{scope}/{region}/{name:.200}: {why}" if why else Entry(scope, region, name, **values)


def _wrong(values: Mapping[str, Any]) -> str | None:
    """What is wrong with what is said of a file."""
    if type(values["location"]) is not str or not values["location"]:
        return f"its location is {values['location']!r:.60}, a text is expected"
    for column, key, least, most in (
        ("mtime_ms", "timestamp", 0, _BEYOND_MS),
        ("links", "version", 1, 1 << 31),
        ("mode", "mode", 0, 0o10000),
        ("position", "offset", 0, 1 << 53),
        ("bytes", "size", 0, 1 << 53),
    ):
        value = values[column]
        if column == "bytes" and value is None:
            continue
        if type(value) is not int or not least <= value < most:
            return f"its {key} is {value!r:.60}, a whole number from {least} to {most - 1} is expected"
    sha256 = values["sha256"]
    if sha256 is not None and (type(sha256) is not str or not _SHA256.fullmatch(sha256)):
        return f"its sha256 is {sha256!r:.80}, 64 lower hex digits are expected"
    if values["role"] not in _ROLES:
        return f"its role is {values['role']!r:.60}, one of {', '.join(_ROLES)} is expected"
    return None


class _Text:
    """JSON text of which a piece is held at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._held, self._at, self._before = stream, "", 0, 0
        self._decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)

    def members(self, of: str) -> Iterator[str]:
        """The keys of the object that comes next, each once; the caller reads what follows a key."""
        self._expect("{", of)
        seen: set[str] = set()
        if self._peek() == "}":
            self._at += 1
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
                self._at += 1
                return
            self._expect(",", of)

    def object(self) -> dict[str, Any]:
        """What is said of a file."""
        if self._peek() != "{":
            self._fail("an object that says where a file is is expected")
        found: dict[str, Any] = self._value("a file")
        return found

    def end(self) -> None:
        """Nothing comes any more."""
        if self._peek():
            self._fail("the manifest has ended, and more comes")

    def _value(self, of: str) -> Any:
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._held, self._at)
            except json.JSONDecodeError as error:
                if len(self._held) - self._at > _LONGEST:
                    self._fail(f"{of} has a value that is no JSON or has over {_LONGEST} characters")
                if not self._more():
                    self._fail(f"{error.msg} in {of}", error.pos)
            except (ValueError, RecursionError) as error:
                self._fail(f"{of}: {error}")
            else:
                return value

    def _peek(self) -> str:
        """The next character that is no space; none at the end."""
        while True:
            found = _SPACE.match(self._held, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._more():
                return ""

    def _expect(self, symbol: str, of: str) -> None:
        if self._peek() != symbol:
            self._fail(f"{symbol!r} is expected in {of}")
        self._at += 1

    def _more(self) -> bool:
        self._before += self._at
        try:
            piece = self._stream.read(_PIECE)
        except UnicodeDecodeError:
            self._fail("what follows is no UTF-8")
        self._held, self._at = self._held[self._at :] + piece, 0
        return bool(piece)

    def _fail(self, why: str, at: int | None = None) -> NoReturn:
        place = self._before + (self._at if at is None else at) + 1
        raise UsageProblem(
            f"This is no manifest of a snapshot: {why} (character {place}).",
            hint='It should be like {"table": {"tablet": {"file": {"location": "…", "timestamp": 0}}}}.',
        )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it says the same twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
