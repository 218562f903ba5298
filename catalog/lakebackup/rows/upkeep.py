"""Rows of policies, restores, checks and the catalog itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakebackup.rows.base import Int32, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Row):
    """How often a source is backed up, and how long its backups are kept. The last row by `at` counts.

    A schedule is a text that `schedule.parse` reads. `*_every_ms` is the longest time between two of its
    instants. `command` is a JSON array with arguments of `lakebackup backup`.
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
    """The topics of a source's policy. Append-only: the last row by `at` counts.

    `patterns` is a JSON array of regular expressions (see `patterns.select`). None means the topics that
    backups hold.
    """

    source: str
    at: int
    actor: str
    patterns: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Row):
    """A backup that is kept whatever the policy says. Append-only: its last row by `at` counts."""

    backup_id: str
    source: str
    at: int
    actor: str
    until_ts: int | None = None
    reason: str
    released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Row):
    """Progress of a restore. Append-only: of each (restore, scope, region), the last row by `at` counts."""

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
    """An action of a person or program, and its subject. The same line is also an object in the destination.

    `detail` is a JSON text. `command` is the command line without secrets. `outcome` is "ok", or the error
    with which the action ended.
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
    """One finding of `verify`. Mode `keys` is about key filters, on which no restore depends. A finding of
    mode `list` comes from a backup, which looks for the objects that the backup before it needs."""

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
    """A trial restore, append-only. `seed` chose the restore point at random; None: a person named it."""

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


#: Runs of upkeep. One that succeeds may change nothing, so its success after a failure is recorded as a row.
UpkeepRun = Literal["merge", "compact", "prune", "truncate"]
FailedRun = Literal["backup", "follow", "full", "import", UpkeepRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Row):
    """A run that ended in an error, append-only. `message` is one line. A row with `exit_code` 0 is a run of
    upkeep that succeeded after a failure."""

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
    """A store of data objects. An empty `uri` means the folder that contains the catalog's folder."""

    destination: str
    uri: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration(Row):
    """A migration that was applied to this catalog."""

    version: Int32
    name: str
    applied_at: int
