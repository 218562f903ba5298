"""Rows of the catalog: one frozen dataclass a table, in the order of the table's columns.

Units: `*_at` are microseconds since 1970 UTC, other instants are in the row's `ts_domain` (Kafka: ms).
Positions are next-to-read, `[start, end)`. A `None` is SQL NULL. The Arrow schemas and Spark's column
lists are derived from these classes, so there is one place to add a column (and one migration).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import pyarrow as pa

#: A target position that nobody knows.
UNKNOWN = -1
#: `backups.source_kind` of backups of a snapshot's files.
SNAPSHOT = "snapshot"
#: `backups.source_kind` of captured change feeds, and of the fulls made of them.
CHANGES = "changes"
#: `backups.source_kind` of an engine's queues, whose fulls stand on a backup of its snapshot.
QUEUES = "queues"

Int32 = Annotated[int, "int32"]
State = Literal["complete", "out_of_sync", "deleted", "unconfirmed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """One completed run. `number` goes up by one per source; `end_ts` is when end positions were taken.

    `place` orders the backups of a source by what they hold: a backup's own number, or for a merge that of
    the last one merged. What it adds is `(parent_place, place]`. A backup of a snapshot stands on no other,
    whatever its kind: it has itself for a base and no `parent_place`; `parent` is what it was compared with.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data object. `path` is relative to the destination; `min_ts`/`max_ts` are over every record.

    `start_key`/`end_key` are lower hex cut at 64 bytes; a cut `end_key` is rounded up. `keys_*`: where the
    file's key filter stands in the destination, in bytes and in blocks; None: any key may be in the file.
    `*_tid`: of messages of an engine's queues.
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
class Departure:
    """A data file that left its source's file set: backups from number `gone_in` on do not have it any more.

    With `added_in` it is the file's whole lifetime, so that differences and obsolete sets are ranges of
    numbers. It still counts for the backups from `added_in` to before `gone_in`.
    """

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
class Position:
    """What a backup covers of one region; `low_position`/`high_position` are the source's own then."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A topic as it was: number of partitions, replication, and every setting as JSON text.

    `generation` counts how often a compacted topic was written anew from its start; a restore takes the
    files of one generation only. 0 for topics that are not compacted.
    """

    backup_id: str
    source: str
    scope: str
    epoch: str
    regions: Int32
    settings: str
    replication: Int32
    generation: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Positions `[from, to)` that no backup holds; `to_position` None: unknown. Times `(from_ts, to_ts]`."""

    backup_id: str
    source: str
    scope: str
    epoch: str
    region: str
    from_position: int
    to_position: int | None
    reason: Literal["purged", "recreated"]
    from_ts: int
    to_ts: int
    bridged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What a consumer group had committed for one partition when a backup began (Admin API).

    `position` is the next offset the group reads. `epoch` None: the topic was not there any more.
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
class GroupCommit:
    """One record of `__consumer_offsets`, decoded. `position` None: the group's offset was erased.

    `kind` says what the record is; those that are no offset have their contents as JSON in `detail`.
    `log_*` is where the record stands; `problem` says why it could not be decoded.
    """

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
class SchemaRecord:
    """One record of a schema registry's topic, decoded; `schema_references` is JSON text."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Where a run of restored records went: source offsets to target offsets.

    A group that stood at source offset p in `[from_position, to_position)` stands at
    `target_position + greatest(0, p - first_position)`: the positions before `first_position` held no
    record that was restored. `target_position` is UNKNOWN where others wrote in between, or where records
    were spread by key. A row without positions says where a group stands that has read all before it.
    `to_ts`: records after that instant were left out.
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
class Removal:
    """A data file that prune took away, or is about to: from this row on it does not count."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """From where on a region can still be restored after a prune: the first position, the first generation.

    Append-only: of one (source, scope, epoch, region) the greatest values count.
    """

    prune_id: str
    at: int
    source: str
    scope: str
    epoch: str
    region: str
    low_position: int
    generation: Int32 = 0
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often a source is backed up and how long that is kept, append-only: the last row by `at` counts.

    A schedule is a text that `schedule.parse` reads, `*_every_ms` what it comes to. `window_days` and
    `redundancy` None: no limit by time, by number of fulls. `removed`: no policy from then on.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTopics:
    """Which topics a source's policy owns, append-only: the last row by `at` counts.

    `patterns`: a JSON array of expressions (see `patterns.select`); None: those that backups hold.
    """

    source: str
    at: int
    actor: str
    patterns: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """A topic of a cluster that neither a policy nor a backup of the source held at `at` (us since 1970 UTC).

    Rows of one `at` are one look; a look that found none has a row with an empty `scope`.
    """

    source: str
    at: int
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A backup that is kept whatever the policy says, append-only: the last row of a backup by `at` counts.

    `until_ts` in ms since 1970 UTC, None: forever. `released`: not held from then on.
    """

    backup_id: str
    source: str
    at: int
    actor: str
    until_ts: int | None = None
    reason: str
    released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
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
class SnapshotDeparture:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask:
    """What a log task is to do, append-only: the last row of a source by `at` counts.

    `settings` is JSON text without secrets: feed, filters, limits of a flush, `endts`. `detail` says why a
    task paused itself.
    """

    source: str
    at: int
    actor: str
    state: Literal["running", "paused", "stopped", "complete"]
    settings: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRegion:
    """How far a region of a change feed was, once a backup had read it: every change up to `resolved_ts`.

    Append-only: of one (source, region) the row with the greatest `number` counts. `closed`: it sends no
    more; what it held is in `successors` from then on, region ids as a JSON list.
    """

    backup_id: str
    number: int
    source: str
    region: str
    store: str
    resolved_ts: int
    closed: bool = False
    successors: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable:
    """A table of a change feed and the name it has from `from_ts` (a commit ts) on; `drop`: none any more.

    `replaces`: the table's id before it was truncated. `covered_from`: every change of it after this ts is
    in the log; a table that was renamed into the filter is captured only from then on. A database itself
    has the negative of its id as `table_id`, and an empty `name`: the view log_tables does not show it.
    """

    backup_id: str
    source: str
    table_id: int
    db: str
    name: str
    from_ts: int
    action: Literal["create", "rename", "truncate", "drop"]
    replaces: int | None = None
    covered_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePoint:
    """The state of an engine that a backup of its queues brings back: everything up to `last_tid`.

    `snapshot_id`, of a full alone: the backup of the engine's snapshot that it stands on. `restore_id`: the
    restore behind which it goes on; the queues' history before that is another one. `carried`: messages in
    front, of transactions open at the full before; `open_transactions`: how many are open at its own end.
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
class QueuePosition:
    """From where on a partition must be read to see every open transaction whole (max_no_transaction_pos).

    It is the end of the backup's range when none is open there. `last_tid`: the greatest seen there so far.
    """

    backup_id: str
    source: str
    scope: str
    epoch: str
    region: str
    no_transaction_position: int
    last_tid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTransaction:
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
class QueueSchema:
    """A version of the messages' schema as a backup found it; valid from `from_tid` on.

    `change` says what was changed, `definition` is the version itself; both JSON text, None: not said.
    """

    backup_id: str
    source: str
    version: int
    from_tid: int
    change: str | None
    definition: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRestore:
    """A partition of a queue into which an engine was restored; of one restore they have one `at`.

    Behind `base_position` stand the messages that follow the full `full_id`; at `end_position` the engine had
    everything up to `last_tid`. `whole`: that is the end of `backup_id`, which is stood upon then; else the
    next backup stands on the full.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Who did what to which thing; `detail` is JSON text. Also an object in the destination."""

    at: int
    actor: str
    action: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding of `verify`; mode `keys`: about key filters, which no restore depends on."""

    check_id: str
    at: int
    backup_id: str | None
    destination: str
    path: str | None
    mode: Literal["stat", "hash", "decode", "restore", "keys"]
    outcome: Literal["ok", "missing", "orphan", "changed", "damaged", "unconfirmed"]
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageObject:
    """One object that `verify` saw in a destination."""

    check_id: str
    at: int
    destination: str
    path: str
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A place that holds data objects; an empty `uri` is the folder that holds the catalog's folder."""

    destination: str
    uri: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A migration that this catalog has gone through."""

    version: Int32
    name: str
    applied_at: int


Row = (
    Backup
    | DataFile
    | Departure
    | Position
    | Scope
    | Gap
    | Group
    | GroupCommit
    | SchemaRecord
    | Restore
    | Translation
    | Removal
    | Floor
    | Policy
    | PolicyTopics
    | TopicSeen
    | Hold
    | SnapshotFile
    | SnapshotDeparture
    | LogTask
    | LogRegion
    | LogTable
    | QueuePoint
    | QueuePosition
    | QueueTransaction
    | QueueSchema
    | QueueRestore
    | Audit
    | Check
    | StorageObject
    | Destination
    | Migration
)

R = TypeVar("R", bound=Row)

TABLES: Mapping[str, type[Row]] = {
    "backups": Backup,
    "files": DataFile,
    "departures": Departure,
    "positions": Position,
    "scopes": Scope,
    "gaps": Gap,
    "groups": Group,
    "group_commits": GroupCommit,
    "schemas": SchemaRecord,
    "restores": Restore,
    "translations": Translation,
    "removals": Removal,
    "floors": Floor,
    "policies": Policy,
    "policy_topics": PolicyTopics,
    "topics_seen": TopicSeen,
    "holds": Hold,
    "snapshot_files": SnapshotFile,
    "snapshot_departures": SnapshotDeparture,
    "log_tasks": LogTask,
    "log_regions": LogRegion,
    "log_tables": LogTable,
    "queue_points": QueuePoint,
    "queue_positions": QueuePosition,
    "queue_transactions": QueueTransaction,
    "queue_schemas": QueueSchema,
    "queue_restores": QueueRestore,
    "audit": Audit,
    "checks": Check,
    "storage_objects": StorageObject,
    "destinations": Destination,
    "migrations": Migration,
}

#: Tables whose rows belong to the backup that they name, and count only if there is that backup.
OF_BACKUPS = (
    "files", "positions", "scopes", "gaps", "groups", "group_commits", "schemas", "snapshot_files",
    "log_regions", "log_tables", "queue_points", "queue_positions", "queue_transactions", "queue_schemas",
)  # fmt: skip

_TABLE_OF: Mapping[type[Any], str] = {kind: table for table, kind in TABLES.items()}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a catalog table; `type` is one of string, int32, int64, bool."""

    name: str
    type: Literal["string", "int32", "int64", "bool"]
    nullable: bool
    choices: tuple[str, ...] = ()


_PYTHON: Mapping[str, type] = {"string": str, "int32": int, "int64": int, "bool": bool}
_SPARK: Mapping[str, str] = {"string": "STRING", "int32": "INT", "int64": "BIGINT", "bool": "BOOLEAN"}


@cache
def columns(table: str) -> tuple[Column, ...]:
    """The columns of a catalog table, in order."""
    kind = TABLES[table]
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_column(field.name, hints[field.name]) for field in fields(kind))


def _column(name: str, hint: Any) -> Column:
    options = [option for option in get_args(hint) if option is not type(None)]
    if get_origin(hint) is Literal:
        return Column(name, "string", False, tuple(options))
    if get_origin(hint) is Annotated:
        return Column(name, "int32", False)
    if options:
        inner = _column(name, options[0])
        return Column(name, inner.type, True, inner.choices)
    return Column(name, "bool" if hint is bool else "int64" if hint is int else "string", False)


def spark_columns(table: str) -> str:
    """The table's columns as Spark reads a schema: `backup_id STRING NOT NULL, ...`."""
    return ", ".join(
        f"{column.name} {_SPARK[column.type]}{'' if column.nullable else ' NOT NULL'}"
        for column in columns(table)
    )


class _ArrowSchemas(Mapping[str, "pa.Schema"]):
    """Arrow schema of each table; pyarrow is imported only when one is asked for."""

    def __getitem__(self, table: str) -> pa.Schema:
        return _arrow_schema(table)

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)


ARROW_SCHEMAS: Mapping[str, pa.Schema] = _ArrowSchemas()


@cache
def _arrow_schema(table: str) -> pa.Schema:
    import pyarrow as pa

    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "bool": pa.bool_()}
    return pa.schema([pa.field(c.name, types[c.type], c.nullable) for c in columns(table)])


def as_row(row: Row) -> dict[str, Any]:
    """The row as column name -> value, in column order."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def table_of(kind: type[Any]) -> str:
    """The table whose rows a class holds."""
    return _TABLE_OF[kind]


def from_row(kind: type[R], values: Mapping[str, Any]) -> R:
    """A row from column name -> value; ValueError for a missing or unknown column, or one of another type."""
    known = columns(table_of(kind))
    unknown = values.keys() - {column.name for column in known}
    if unknown:
        raise ValueError(f"unknown column {', '.join(sorted(unknown))}")
    for column in known:
        if column.name not in values:
            raise ValueError(f"column {column.name} is missing")
        value = values[column.name]
        if value is None and column.nullable:
            continue
        if type(value) is not _PYTHON[column.type]:
            raise ValueError(f"column {column.name} is {value!r}, expected {column.type}")
        if column.choices and value not in column.choices:
            raise ValueError(f"column {column.name} is {value!r}, not one of {', '.join(column.choices)}")
    made: R = kind(**values)  # type: ignore[assignment]
    return made


def json_line(row: Row) -> str:
    """The row as one line of canonical JSON (columns in order, no blanks, no line break)."""
    return json.dumps(as_row(row), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


LANES = 4
LANE_DIGITS = 15


class Digest:
    """A digest of a set of text lines that does not depend on their order and that SQL can compute too.

    The SHA-256 of each line is cut into four numbers of 15 hex digits; each is added up modulo 16**15.
    Sets can be added in parts. It finds damage and mistakes, it is no signature.
    """

    def __init__(self) -> None:
        self._lanes = [0] * LANES

    def add(self, line: str) -> None:
        """Take one more line (without its line break) into the digest."""
        text = hashlib.sha256(line.encode()).hexdigest()
        self.add_lanes(int(text[lane * LANE_DIGITS : (lane + 1) * LANE_DIGITS], 16) for lane in range(LANES))

    def add_lanes(self, sums: Iterable[int]) -> None:
        """Take in sums that were computed elsewhere, one number a lane."""
        self._lanes = [(old + new) % 16**LANE_DIGITS for old, new in zip(self._lanes, sums, strict=True)]

    def update(self, other: Digest) -> None:
        """Take in every line that another digest has seen."""
        self.add_lanes(other._lanes)

    @property
    def lanes(self) -> tuple[int, ...]:
        """The sums so far, one number a lane: what a task sends to whoever adds them up."""
        return tuple(self._lanes)

    def hex(self) -> str:
        """60 lower hex digits."""
        return "".join(f"{lane:0{LANE_DIGITS}x}" for lane in self._lanes)
