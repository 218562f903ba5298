"""Rows of tables that all kinds of sources use: backups, files, positions and what a prune removes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Int32, Row, State

#: What runs the tasks of a backup: Spark, or threads of the lakebackup process.
Runner = Literal["spark", "local"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup(Row):
    """One completed backup.

    `place` orders the backups of a source by their content; this one adds `(parent_place, place]`. A backup
    of a snapshot depends on no other, whatever its kind: it is its own base and has no `parent_place`, and
    `parent` is the backup with which it was compared.
    """

    backup_id: str
    number: int
    source: str
    source_kind: str = "kafka"
    destination: str
    kind: Literal["full", "differential", "cumulative", "log"]
    level: Int32
    parent: str | None
    base: str
    chain_position: Int32
    place: int
    parent_place: int | None
    branch: Int32 = 0
    state: State = "complete"
    ts_domain: str = "ms"
    start_ts: int | None
    end_ts: int
    started_at: int
    finished_at: int
    files: int
    bytes: int
    entries: int
    digest: str
    isolation: str
    codec: str
    created_by: str
    tool: str
    note: str | None = None
    runner: Runner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile(Row):
    """One data object. `min_ts` and `max_ts` cover all of its records.

    `start_key` and `end_key` are lower hex of at most 64 bytes; a shortened `end_key` is rounded up. An
    encrypted file has neither. `keys_*` locate the file's key filter; when they are None, any key may be in
    the file. `key_id`: the key that encrypts the file.
    """

    destination: str
    path: str
    backup_id: str
    added_in: int
    source: str
    scope: str
    epoch: str
    region: str
    role: Literal["data", "meta", "schema", "config"] = "data"
    format: str
    codec: str
    key_id: str | None = None
    bytes: int
    raw_bytes: int
    sha256: str
    entries: int
    ts_domain: str = "ms"
    min_ts: int
    max_ts: int
    min_begin_ts: int | None = None
    resolved_ts: int | None = None
    start_position: int
    end_position: int
    start_key: str | None = None
    end_key: str | None = None
    null_keys: int = 0
    tombstones: int = 0
    cf: str | None = None
    op: str | None = None
    level: Int32 = 0
    parent: str | None = None
    generation: Int32 = 0
    keys_path: str | None = None
    keys_start: int | None = None
    keys_blocks: int | None = None
    min_tid: int | None = None
    max_tid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecipient(Row):
    """A recipient who can open a data key of a backup. Of each key, only the rows with the latest
    `wrapped_at` count."""

    key_id: str
    source: str
    backup_id: str
    recipient: str
    created_at: int
    wrapped_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure(Row):
    """A data file that left its file set. It counts for the backups with numbers in `[added_in, gone_in)`."""

    destination: str
    path: str
    backup_id: str
    added_in: int
    gone_in: int
    source: str
    scope: str
    epoch: str
    region: str
    bytes: int
    entries: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Position(Row):
    """The positions of one region that a backup covers: `[start_position, end_position)`."""

    backup_id: str
    source: str
    scope: str
    epoch: str
    region: str
    start_position: int
    end_position: int
    low_position: int
    high_position: int
    leader_epoch: Int32 | None = None
    ts: int
    open_since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(Row):
    """A topic and its settings at the time of a backup. A restore uses the files of one generation only."""

    backup_id: str
    source: str
    scope: str
    epoch: str
    regions: Int32
    settings: str
    replication: Int32
    generation: Int32 = 0
    complete_ts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Row):
    """Positions that no backup holds, `[from_position, to_position)`, with times in `(from_ts, to_ts]`.

    A `bridged` gap lies within a generation: the chain has positions before and after it.
    """

    backup_id: str
    source: str
    scope: str
    epoch: str
    region: str
    from_position: int
    to_position: int | None
    reason: Literal["purged", "recreated", "skipped"]
    from_ts: int
    to_ts: int
    bridged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal(Row):
    """A data file that was pruned, or is about to be. Once the row exists, the file does not count.

    With `files`, the row stands for that many files: all those of the backup that the prune `prune_id`
    deleted for that reason. Then nothing is left of the backup, and path, scope, epoch and region are `-`.
    """

    prune_id: str
    at: int
    source: str
    destination: str
    path: str
    backup_id: str
    scope: str
    epoch: str
    region: str
    bytes: int
    reason: str
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor(Row):
    """The first position and generation of a region after a prune. The greatest values of all rows count."""

    prune_id: str
    at: int
    source: str
    scope: str
    epoch: str
    region: str
    low_position: int
    generation: Int32 = 0
    reason: str
