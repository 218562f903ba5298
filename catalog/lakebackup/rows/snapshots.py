"""Rows of snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Int32, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile(Row):
    """A file of a snapshot, valid from the backup `added_in` that first found it with these attributes.

    It is stored as `[position, position + stored_bytes)` of the object at `path`, which may hold many files:
    as it is, or as one zstd frame. `sha256` is of its contents. Several files may share the same bytes. When
    `bytes` and `sha256` are None, the file was imported without them and never counts as unchanged. When
    `codec` and `stored_bytes` are None, it is stored as it is. `key_id` is the data key of the object: of an
    encrypted one, `position` and `stored_bytes` are of its content. `ctime_ns` and `inode` tell whether a
    file of the same size and time is still the same file.
    """

    source: str
    scope: str
    region: str
    name: str
    role: Literal["data", "meta", "schema", "config"] = "data"
    backup_id: str
    added_in: int
    bytes: int | None
    mtime_ms: int
    mode: Int32
    links: Int32
    sha256: str | None
    destination: str
    path: str
    position: int = 0
    ctime_ns: int | None = None
    inode: int | None = None
    codec: Literal["none", "zstd"] | None = None
    stored_bytes: int | None = None
    key_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFolder(Row):
    """A folder of a snapshot, valid from this backup until a later row with the same name.

    The tablet's own folder has an empty name. When `mode` and `mtime_ms` are None, this backup no longer has
    the folder.
    """

    source: str
    scope: str
    region: str
    name: str
    backup_id: str
    added_in: int
    mode: Int32 | None
    mtime_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDeparture(Row):
    """The end of a row in `snapshot_files`: backups from `gone_in` on do not have that state of the file."""

    source: str
    scope: str
    region: str
    name: str
    added_in: int
    gone_in: int
    gone_by: str
