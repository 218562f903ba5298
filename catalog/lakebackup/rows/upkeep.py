"""Rows of policies, restores, checks and the catalog itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Int32, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Row):
    """How often a source is backed up and how long that is kept, append-only: the last row by `at` counts.

    A schedule is a text that `schedule.parse` reads, `*_every_ms` what it comes to. `command`: arguments of
    `lakebackup backup`, a JSON array.
    """

    source: str
    at: int
    actor: str
    full_schedule: str | None = None
    full_every_ms: int | None = None
    incremental_schedule: str | None = None
    incremental_every_ms: int | None = None
    incremental_kind: Literal["differential", "cumulative"] = "differential"
    level: Int32 = 1
    window_days: Int32 | None = None
    redundancy: Int32 | None = None
    min_redundancy: Int32 = 1
    note: str | None = None
    removed: bool = False
    keep_last: Int32 | None = None
    keep_hourly: Int32 | None = None
    keep_daily: Int32 | None = None
    keep_weekly: Int32 | None = None
    keep_monthly: Int32 | None = None
    keep_yearly: Int32 | None = None
    keep_differentials: Int32 | None = None
    time_zone: str | None = None
    command: str | None = None
    drill_schedule: str | None = None
    drill_every_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTopics(Row):
    """Which topics a source's policy owns, append-only: the last row by `at` counts.

    `patterns`: a JSON array of expressions (see `patterns.select`); None: those that backups hold.
    """

    source: str
    at: int
    actor: str
    patterns: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Row):
    """A backup that is kept whatever the policy says, append-only: its last row by `at` counts."""

    backup_id: str
    source: str
    at: int
    actor: str
    until_ts: int | None = None
    reason: str
    released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Row):
    """Progress of a restore, append-only: of one (restore, scope, region) the last row by `at` counts."""

    restore_id: str
    at: int
    source: str
    scope: str | None = None
    region: str | None = None
    state: Literal["running", "region_done", "complete", "failed"]
    target: str
    from_ts: int | None = None
    to_ts: int | None = None
    selection: str
    position: int | None = None
    entries: int | None = None
    bytes: int | None = None
    detail: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Row):
    """Who did what to which thing; `detail` is JSON text. Also an object in the destination.

    `command`: the command line without secrets. `outcome`: "ok", or the error that it ended with.
    """

    at: int
    actor: str
    action: str
    subject: str
    detail: str
    host: str | None = None
    command: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Row):
    """One finding of `verify`; mode `keys`: about key filters, which no restore depends on. Mode `list`: of a
    backup, which looks for the objects that the one before needs."""

    check_id: str
    at: int
    backup_id: str | None
    destination: str
    path: str | None
    mode: Literal["stat", "hash", "decode", "restore", "keys", "list"]
    outcome: Literal["ok", "missing", "orphan", "changed", "damaged", "unconfirmed"]
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill(Row):
    """A restore on trial, append-only. `seed`: the restore point was drawn with it, None: it was named."""

    drill_id: str
    at: int
    source: str
    backup_id: str
    to_ts: int | None = None
    seed: int | None = None
    target: Literal["dir", "delta"]
    entries: int | None = None
    files: int | None = None
    bytes: int | None = None
    predicted_ms: int | None = None
    real_ms: int | None = None
    outcome: Literal["ok", "different", "failed"]
    detail: str | None = None
    actor: str


#: Runs that keep backups: one that ends well may leave nothing, so the end of a failure is recorded.
UpkeepRun = Literal["merge", "compact", "prune", "truncate"]
FailedRun = Literal["backup", "follow", "full", "import", UpkeepRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Row):
    """A run that ended in an error, append-only. `message`: a line. With `exit_code` 0: a run of upkeep that
    ended well after such."""

    source: str
    source_kind: str
    run: FailedRun
    started_at: int
    at: int
    error: str
    message: str
    exit_code: Int32
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageObject(Row):
    """One object that `verify` saw in a destination."""

    check_id: str
    at: int
    destination: str
    path: str
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination(Row):
    """A place that holds data objects; an empty `uri` is the folder that holds the catalog's folder."""

    destination: str
    uri: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration(Row):
    """A migration that this catalog has gone through."""

    version: Int32
    name: str
    applied_at: int
