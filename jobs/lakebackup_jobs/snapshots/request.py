"""What to back up of snapshots."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from lakebackup import requests
from lakebackup.formats.snapshots.compression import CodecChoice
from lakebackup.plan.snapshots.backup import Role
from lakebackup_jobs.snapshots.find import root_of

ALWAYS = ("CURRENT", "MANIFEST-*")
PACK_BELOW = 1 << 20
# Two requests are the same backup if these fields agree, and also all fields that are added to requests
# later, except those in _ELSE.
_COMPARED_FIELDS = (
    "layout", "mode", "pack_below", "verify_unchanged", "find_same", "taken_at", "note", "paths", "always",
    "sidecars",
)  # fmt: skip
# Fields that do not make it another backup: locations, speed, and which snapshots (each has its own backup).
_IGNORED_FIELDS = (
    "destination", "catalog", "source", "remote", "lease_ttl_s", "runner", "local_below", "parallelism",
    "dry_run", "snapshots", "everything",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SnapshotRequest(requests.RunRequest):
    """What to back up.

    `paths`: trees of one layout. `snapshots`: ids; if empty, the newest snapshot, or with `everything` all
    that are newer than the newest backup. `always`: patterns of the names of files that are always copied.
    `codec`: how files are stored. `recipients`: who can read the files that are copied; without recipients
    they are not encrypted. `pack_below` in bytes; `taken_at` in ms since 1970 UTC. `trust_mtime`:
    ignore the inode and ctime of a file when it is compared.
    """

    paths: tuple[str, ...]
    source: str | None = None
    layout: str = "plain"
    snapshots: tuple[str, ...] = ()
    everything: bool = False
    always: tuple[str, ...] = ALWAYS
    codec: CodecChoice = "auto"
    recipients: tuple[str, ...] = ()
    pack_below: int = PACK_BELOW
    mode: Literal["auto", "full"] = "auto"
    verify_unchanged: bool = False
    trust_mtime: bool = False
    find_same: bool = False
    sidecars: tuple[tuple[Role, str], ...] = ()
    taken_at: int | None = None
    note: str | None = None
    parallelism: int = os.cpu_count() or 2

    @property
    def identity(self) -> dict[str, Any]:
        """The fields by which two requests are the same backup, as JSON values."""
        fields = requests.digest_fields(self, always=_COMPARED_FIELDS, never=_IGNORED_FIELDS)
        return {**fields, "paths": [str(root_of(path)) for path in self.paths]}
