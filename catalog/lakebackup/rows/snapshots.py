"""Rows of snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Int32, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile(Row):
    """A file of a snapshot, from the backup that first found it so on: bytes, time and place.

    `name` is its path within the region's folder of the snapshot. Its bytes are
    `[position, position + bytes)` of the object at `path`; an object may hold many files, and several files
    may have one place. `mtime_ms` in ms since 1970 UTC; `mode` its permission bits; `links` its hard links
    then. `bytes` and `sha256` None: it came from elsewhere without them, and never counts as unchanged.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDeparture(Row):
    """A file that a snapshot did not have any more, or not as it was: backup `gone_by`, number `gone_in`.

    With `added_in` of its row in `snapshot_files` it is the row's whole lifetime: backups from `added_in` to
    before `gone_in` have it.
    """

    source: str
    scope: str
    region: str
    name: str
    added_in: int
    gone_in: int
    gone_by: str
