"""A backup's own description beside its data, from which a lost catalog can be made again.

Each Spark task puts one part (the rows of the files it wrote, a JSON object a line); the manifest then says
what the backup is, how many parts there are and what their rows add up to; a marker says it was committed.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.rows.backups import Backup, DataFile, Gap, Position, Scope
from lakebackup.rows.tables import R, as_row, from_row, json_line
from lakebackup.rows.topics import Group
from lakebackup.rules.layout import FORMAT
from lakebackup.storage import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import TypeAdapter

    from lakebackup.storage import Storage

T = TypeVar("T")
_SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\n')
_SEAL_BYTES = 78
_RESTORE_HINT = "Take it from another copy of the destination; the files it describes may still be whole."


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One backup. The totals and the digest in `backup` are over the lines of all parts (`model.Digest`)."""

    backup: Backup
    positions: Sequence[Position]
    scopes: Sequence[Scope]
    gaps: Sequence[Gap]
    groups: Sequence[Group] = ()
    parts: int


def write_part(storage: Storage, path: str, rows: Sequence[DataFile]) -> list[DataFile]:
    """Put the file rows of one task as `path`, once; returns the rows that count.

    When an earlier attempt of the task was first, these are that attempt's rows, and what this one wrote is
    left over. Raises EnvironmentProblem (storage), Damaged (the earlier part).
    """
    text = "".join(f"{json_line(row)}\n" for row in rows)
    try:
        storage.put(path, text.encode(), if_absent=True)
    except AlreadyExists:
        return read_part(storage, path)
    return list(rows)


def read_part(storage: Storage, path: str) -> list[DataFile]:
    """The file rows of a part. Raises NotFound, and Damaged with the number of the first wrong line."""
    lines = storage.get(path).split(b"\n")
    if lines.pop():
        raise Damaged(f"{path}, line {len(lines) + 1}: it is cut off.", hint=_RESTORE_HINT)
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = from_row(DataFile, _object(json.loads(line)))
            if json_line(row).encode() != line:
                raise ValueError("it is not as it was written")
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{path}, line {number}: {error}.", hint=_RESTORE_HINT) from error
        rows.append(row)
    return rows


def write_manifest(storage: Storage, path: str, manifest: Manifest) -> None:
    """Put the manifest as `path`, with the SHA-256 of itself as its last field; replaces an older one."""
    content = {
        "format": FORMAT,
        "backup": as_row(manifest.backup),
        "positions": [as_row(row) for row in manifest.positions],
        "scopes": [as_row(row) for row in manifest.scopes],
        "gaps": [as_row(row) for row in manifest.gaps],
        "groups": [as_row(row) for row in manifest.groups],
        "parts": manifest.parts,
    }
    put_sealed(storage, path, content)


def read_manifest(storage: Storage, path: str) -> Manifest:
    """The manifest at `path`.

    Raises NotFound, Damaged (a byte changed, torn, a wrong field), UsageProblem (written by a newer version).
    """
    content = get_sealed(storage, path)
    try:
        return _manifest(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path}: {error}.", hint=_RESTORE_HINT) from error


def put_sealed(storage: Storage, path: str, content: Mapping[str, object]) -> None:
    """Put a JSON object with the SHA-256 of itself as its last field; `content` begins with its format."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    body = text.removesuffix("}").encode()
    storage.put(path, body + b',"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode())


def get_sealed(storage: Storage, path: str) -> dict[str, Any]:
    """What `put_sealed` put, without its format and its seal. Raises as `read_manifest` does."""
    data = storage.get(path)
    body, seal = data[:-_SEAL_BYTES], _SEAL.fullmatch(data[-_SEAL_BYTES:])
    if not seal or hashlib.sha256(body).hexdigest().encode() != seal[1]:
        raise Damaged(f"{path}: its contents do not match the SHA-256 at its end.", hint=_RESTORE_HINT)
    try:
        content = _object(json.loads(body + b"}"))
        version = content.pop("format", None)
        if type(version) is int and version > FORMAT:
            raise UsageProblem(
                f"{path} has format version {version}; this lakebackup reads versions up to {FORMAT}.",
                hint="Use the lakebackup that wrote it, or a newer one.",
            )
        if version != FORMAT:
            raise ValueError(f"format {version!r}")
        return content
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path}: {error}.", hint=_RESTORE_HINT) from error


def get_record(storage: Storage, path: str, kind: TypeAdapter[T]) -> T | None:
    """What a run that was cut off recorded of itself; None when there is nothing.

    A record that is damaged, or of another version or shape, is deleted: what its run stored are orphans.
    """
    from pydantic import ValidationError

    try:
        return kind.validate_python(get_sealed(storage, path))
    except NotFound:
        return None
    except (Damaged, UsageProblem, ValidationError):
        storage.delete(path)
        return None


def mark(storage: Storage, path: str, payload: Mapping[str, object] | None = None) -> None:
    """Put a marker, with `payload` as JSON or empty; one that is there already stays as it is."""
    with suppress(AlreadyExists):
        storage.put(path, json.dumps(payload).encode() if payload else b"", if_absent=True)


def marked(storage: Storage, path: str) -> bool:
    """Whether the marker is there."""
    try:
        storage.stat(path)
    except NotFound:
        return False
    return True


def _manifest(content: dict[str, Any]) -> Manifest:
    expected = {"backup", "positions", "scopes", "gaps", "groups", "parts"}
    if content.keys() != expected:
        raise ValueError(f"its fields are {', '.join(sorted(content))}")
    parts = content["parts"]
    if type(parts) is not int or parts < 0:
        raise ValueError(f"parts is {parts!r}")
    manifest = Manifest(
        backup=from_row(Backup, _object(content["backup"])),
        positions=_rows(Position, content["positions"]),
        scopes=_rows(Scope, content["scopes"]),
        gaps=_rows(Gap, content["gaps"]),
        groups=_rows(Group, content["groups"]),
        parts=parts,
    )
    rows: list[Position | Scope | Gap | Group] = [
        *manifest.positions, *manifest.scopes, *manifest.gaps, *manifest.groups,
    ]  # fmt: skip
    for row in rows:
        if (row.backup_id, row.source) != (manifest.backup.backup_id, manifest.backup.source):
            raise ValueError(f"it holds a row of backup {row.backup_id} of {row.source}")
    return manifest


def _rows(kind: type[R], values: object) -> tuple[R, ...]:
    if not isinstance(values, list):
        raise ValueError(f"{values!r:.80} is no list")
    return tuple(from_row(kind, _object(value)) for value in values)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.80} is no JSON object")
    return value
