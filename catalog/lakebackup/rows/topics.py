"""Rows of Kafka topics."""

from __future__ import annotations

from dataclasses import dataclass

from lakebackup.rows.base import Int32, Row

#: Stands for the topic in the row of a group whose position cannot be saved. The view shows NULL.
NO_TOPIC = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Row):
    """The offset that a consumer group had committed for one partition when a backup began (Admin API).

    A group whose position cannot be saved has one row, whose `scope` is NO_TOPIC.
    """

    backup_id: str
    source: str
    group_id: str
    protocol: str
    state: str
    scope: str
    epoch: str | None
    region: str
    position: int
    leader_epoch: Int32 | None = None
    metadata: str | None = None
    ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit(Row):
    """One decoded record of `__consumer_offsets`. When `position` is None, the group's offset was erased."""

    backup_id: str
    source: str
    kind: str
    group_id: str | None
    scope: str | None = None
    epoch: str | None = None
    region: str | None = None
    position: int | None = None
    leader_epoch: Int32 | None = None
    metadata: str | None = None
    commit_ts: int | None = None
    expire_ts: int | None = None
    key_version: Int32 | None = None
    value_version: Int32 | None = None
    detail: str | None = None
    problem: str | None = None
    log_epoch: str
    log_region: str
    log_position: int
    log_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord(Row):
    """One decoded record of a schema registry's topic."""

    backup_id: str
    source: str
    scope: str
    epoch: str
    kind: str
    subject: str | None = None
    version: Int32 | None = None
    schema_id: Int32 | None = None
    schema_type: str | None = None
    schema_text: str | None = None
    schema_references: str | None = None
    deleted: bool = False
    erased: bool = False
    detail: str | None = None
    problem: str | None = None
    log_region: str
    log_position: int
    log_ts: int


#: Stands for the instant up to which a topic was restored, when a restore left out other records too.
IN_PART = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation(Row):
    """Where a restore wrote a range of consecutive records: source offsets to target offsets.

    A group at source offset p in `[from_position, to_position)` moves to `target_position + greatest(0, p -
    first_position)`: no record before `first_position` was restored. `target_position` is UNKNOWN if other
    producers wrote in between, or if records were spread by key. A row with an empty range is for a group
    that has read all records before it. `to_ts`: the restore left out the records after this instant;
    IN_PART: it left out other records too.
    """

    restore_id: str
    at: int
    source: str
    scope: str
    epoch: str
    region: str
    cluster: str
    target_scope: str
    target_epoch: str
    target_region: str
    from_position: int
    first_position: int
    to_position: int
    target_position: int
    to_ts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen(Row):
    """A topic of a cluster that was in no policy and no backup of the source at the time `at`.

    All rows of one `at` come from one listing of the cluster. A listing without such topics has one row, with
    an empty `scope`.
    """

    source: str
    at: int
    scope: str
