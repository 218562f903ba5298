"""Rows of an engine's queues."""

from __future__ import annotations

from dataclasses import dataclass

from lakebackup.rows.base import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePoint(Row):
    """The state of an engine that a backup of its queues restores: everything up to `last_tid`.

    `restore_id`: the restore that the backup continues; before that restore, the queues had another history.
    `carried`: the number of messages in front that belong to transactions open at the full before.
    """

    backup_id: str
    source: str
    first_tid: int | None
    last_tid: int
    snapshot_id: str | None
    restore_id: str | None
    carried: int
    open_transactions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition(Row):
    """The position of a partition from which a reader sees all messages of every open transaction
    (max_no_transaction_pos)."""

    backup_id: str
    source: str
    scope: str
    epoch: str
    region: str
    no_transaction_position: int
    last_tid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTransaction(Row):
    """A transaction that was neither committed nor rolled back at a backup's end, in one partition."""

    backup_id: str
    source: str
    transaction_id: str
    scope: str
    epoch: str
    region: str
    first_position: int
    first_tid: int
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSchema(Row):
    """A version of the messages' schema at the time of a backup, valid from `from_tid` on."""

    backup_id: str
    source: str
    version: int
    from_tid: int
    change: str | None
    definition: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRestore(Row):
    """A partition of a queue into which an engine was restored. All rows of one restore have the same `at`.

    Messages after the full begin at `base_position`. At `end_position`, the engine had everything up to
    `last_tid`. `whole`: the restore went up to the end of `backup_id`, so the next backup continues that one;
    otherwise the next backup continues the full.
    """

    restore_id: str
    at: int
    actor: str
    source: str
    backup_id: str
    full_id: str
    whole: bool
    last_tid: int
    cluster: str
    scope: str
    epoch: str
    region: str
    base_position: int
    end_position: int
