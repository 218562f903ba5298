"""Rows of Kafka topics."""

from __future__ import annotations

from dataclasses import dataclass

from lakebackup.rows.base import Int32, Row

#: In place of the topic in a row of a group whose position cannot be saved; the view shows NULL.
NO_TOPIC = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Row):
    """What a consumer group had committed for one partition when a backup began (Admin API), or that there
    was a group whose position cannot be saved: its `scope` is NO_TOPIC."""

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
    """One record of `__consumer_offsets`, decoded. `position` None: the group's offset was erased."""

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
    """One record of a schema registry's topic, decoded."""

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


#: In place of the instant up to which a topic was restored.
IN_PART = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation(Row):
    """Where a run of restored records went: source offsets to target offsets.

    A group at source offset p in `[from_position, to_position)` moves to `target_position + greatest(0, p -
    first_position)`: the positions before `first_position` held no record that was restored.
    `target_position` is UNKNOWN where others wrote in between, or where records were spread by key. A row
    without positions is for a group that has read all before it. `to_ts`: the instant after which records
    were left out; IN_PART: others were, too.
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
    """A topic of a cluster that neither a policy nor a backup of the source held at `at`.

    Rows of one `at` are one look; a look that found none has a row with an empty `scope`.
    """

    source: str
    at: int
    scope: str
