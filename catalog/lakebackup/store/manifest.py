"""A backup's own description beside its data, from which a lost catalog can be rebuilt.

Each Spark task puts one part: the rows of the files that it wrote, one JSON object a line. Then the manifest
holds the backup's row, the number of parts and the totals of their rows. A marker records that the backup was
committed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from annotated_types import Ge
from pydantic import TypeAdapter, ValidationError

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.rows.backups import Backup, DataFile, Gap, Position, Scope
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.tables import as_row, json_line
from lakebackup.rows.topics import Group
from lakebackup.rules import layout
from lakebackup.rules.layout import ENCODED_FORMAT, FORMAT
from lakebackup.storage import MANY, AlreadyExists, Storage, working

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
_SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\n')
_SEAL_BYTES = 78
_RESTORE_HINT = "Take it from another copy of the repository; the files it describes may still be whole."


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One backup. The totals and the digest in `backup` cover the lines of all parts."""

    backup: Backup
    positions: Sequence[Position]
    scopes: Sequence[Scope]
    gaps: Sequence[Gap]
    groups: Sequence[Group] = ()
    parts: Annotated[int, Ge(0)]

    @property
    def rows(self) -> list[Position | Scope | Gap | Group]:
        """All rows of the manifest except the one of `backups`."""
        return [*self.positions, *self.scopes, *self.gaps, *self.groups]


def write_part(storage: Storage, path: str, rows: Sequence[DataFile]) -> list[DataFile]:
    """Put the file rows of one task as `path`, only once, and return the rows that are then in force.

    If an earlier attempt of the task put the part, these are that attempt's rows, and the files of this
    attempt are orphans. Raises EnvironmentProblem (storage) and Damaged (the earlier part).
    """
    text = "".join(f"{json_line(row)}\n" for row in rows)
    try:
        storage.put(path, text.encode(), if_absent=True)
    except AlreadyExists:
        return read_part(storage, path)
    return list(rows)


def read_part(storage: Storage, path: str) -> list[DataFile]:
    """Read the file rows of a part. Raises NotFound, and Damaged with the number of the first wrong line."""
    lines = storage.get(path, length=MANY).split(b"\n")
    if lines.pop():
        raise Damaged(f"{path}, line {len(lines) + 1}: it is cut off.", hint=_RESTORE_HINT)
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = from_json(DataFile, line)
            if json_line(row).encode() != line:
                raise ValueError("it is not as it was written")
        except ValueError as error:
            raise Damaged(f"{path}, line {number}: {error}.", hint=_RESTORE_HINT) from error
        rows.append(row)
    return rows


def read_parts(storage: Storage, source: str, backup_id: str, parts: int) -> Iterator[DataFile]:
    """Read the file rows of the first `parts` parts of a backup. Raises the same errors as `read_part`."""
    for task in range(parts):
        yield from read_part(storage, layout.parts_path(source, backup_id, task))


def write_manifest(storage: Storage, path: str, manifest: Manifest, *, encrypted: bool = False) -> None:
    """Put the manifest of a backup. Replaces an older one.

    A version of lakebackup that does not know compressed or encrypted snapshots refuses the manifest of one.
    """
    backup = manifest.backup
    is_encoded = backup.source_kind == SNAPSHOT and (encrypted or backup.codec != "null")
    version = ENCODED_FORMAT if is_encoded else FORMAT
    put_sealed(storage, path, {"format": version, **as_row(manifest)})


def read_manifest(storage: Storage, path: str) -> Manifest:
    """Read the manifest at `path`. Raises the same errors as `read_record`."""
    return parse_manifest(working.read_latest(storage, path), path)


def parse_manifest(content: bytes, path: str) -> Manifest:
    """Parse the content of the manifest at `path`. Raises Damaged and UsageProblem, as `read_record`."""
    manifest = _parse(content, path, Manifest, _RESTORE_HINT, newest=ENCODED_FORMAT)
    backup = manifest.backup
    for row in manifest.rows:
        if (row.backup_id, row.source) != (backup.backup_id, backup.source):
            raise Damaged(
                f"{path}: it holds a row of backup {row.backup_id} of {row.source}.", hint=_RESTORE_HINT
            )
    return manifest


def write_record(storage: Storage, path: str, record: DataclassInstance) -> None:
    """Put a dataclass as sealed JSON. Replaces an older one."""
    put_sealed(storage, path, {"format": FORMAT, **as_row(record)})


def read_record(
    storage: Storage, path: str, kind: type[T], hint: str = _RESTORE_HINT, *, newest: int = FORMAT
) -> T:
    """Read a record that `write_record` put, of a format up to `newest`.

    Raises NotFound, Damaged (it was changed or cut off, or a field is wrong) and UsageProblem (a newer
    version wrote it).
    """
    return _parse(working.read_latest(storage, path), path, kind, hint, newest=newest)


def _parse(sealed: bytes, path: str, kind: type[T], hint: str, *, newest: int) -> T:
    content = _unsealed(sealed, path, newest=newest)
    try:
        return from_json(kind, json.dumps(content))
    except ValueError as error:
        raise Damaged(f"{path}: {error}.", hint=hint) from error


def from_json(kind: type[T], text: str | bytes) -> T:
    """Make a dataclass from a JSON object.

    Raises ValueError when a field is missing, unknown or of another type, or when its value is not one of its
    type's choices.
    """
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]
    try:
        return adapter.validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(
            ": ".join(filter(None, [".".join(map(str, problem["loc"])), problem["msg"]]))
        ) from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def put_sealed(storage: Storage, path: str, content: Mapping[str, object]) -> None:
    """Put a JSON object whose last field is the SHA-256 of the rest.

    `content` begins with its format. Dataclasses in it become objects.
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=as_row)
    body = text.removesuffix("}").encode()
    storage.put(path, body + b',"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode())


def get_sealed(storage: Storage, path: str, *, newest: int = FORMAT) -> dict[str, Any]:
    """Read an object that `put_sealed` put, of a format up to `newest`, without its format and its SHA-256.

    Raises the same errors as `read_record`.
    """
    return _unsealed(working.read_latest(storage, path), path, newest=newest)


def _unsealed(sealed: bytes, path: str, *, newest: int) -> dict[str, Any]:
    body, seal = sealed[:-_SEAL_BYTES], _SEAL.fullmatch(sealed[-_SEAL_BYTES:])
    if not seal or hashlib.sha256(body).hexdigest().encode() != seal[1]:
        raise Damaged(f"{path}: its contents do not match the SHA-256 at its end.", hint=_RESTORE_HINT)
    try:
        content = json.loads(body + b"}")
        if not isinstance(content, dict):
            raise ValueError(f"{content!r:.80} is no JSON object")
        version = content.pop("format", None)
        if type(version) is int and version > newest:
            raise UsageProblem(
                f"{path} has format version {version}; this lakebackup reads versions up to {newest}.",
                hint="Use the lakebackup that wrote it, or a newer one.",
            )
        if type(version) is not int or version < FORMAT:
            raise ValueError(f"format {version!r}")
        return content
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path}: {error}.", hint=_RESTORE_HINT) from error


def get_verified(storage: Storage, path: str, sha256: str) -> bytes:
    """Read an object and check its SHA-256. Raises NotFound, and Damaged when the SHA-256 differs."""
    data = storage.get(path, length=MANY)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(f"{path} is not as it was written: its SHA-256 differs.", hint=_RESTORE_HINT)
    return data


def get_record(storage: Storage, path: str, kind: TypeAdapter[T]) -> T | None:
    """Read the record of an interrupted run; None when there is none.

    A record that is damaged, or of another version or shape, is deleted. Then the objects of its run are
    orphans.
    """
    try:
        return kind.validate_python(get_sealed(storage, path))
    except NotFound:
        return None
    except (Damaged, UsageProblem, ValidationError):
        working.retire(storage, path)
        return None


def mark(storage: Storage, path: str, payload: Mapping[str, object] | None = None) -> None:
    """Put a marker, with `payload` as JSON or empty. An existing marker stays as it is."""
    with suppress(AlreadyExists):
        storage.put(path, json.dumps(payload).encode() if payload else b"", if_absent=True)
