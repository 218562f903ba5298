"""Rows of snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Int32, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile(Row):
    """A file of a snapshot, from the backup on that first found it so: bytes, time and place.

    Its bytes are `[position, position + bytes)` of the object at `path`, which may hold many files; several
    files may have one place. `bytes` and `sha256` None: imported without them, so it never counts as
    unchanged. `ctime_ns` and `inode` tell whether a file of the same size and time is still that file.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFolder(Row):
    """A folder of a snapshot, from this backup on until a later row of that name.

    The tablet's own folder has an empty name. `mode` and `mtime_ms` None: the folder is gone in this backup.
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
    """The end of a row in `snapshot_files`: backups from `gone_in` on do not have the file so."""

    source: str
    scope: str
    region: str
    name: str
    added_in: int
    gone_in: int
    gone_by: str
