"""The tables of the catalog: one frozen dataclass per table, with fields in the order of its columns.

Units: `*_at` are microseconds since 1970 UTC; other instants are in the row's `ts_domain` (Kafka: ms). A
position is the next one to read, so ranges are `[start, end)`. None is SQL's NULL. The Arrow schemas and the
column lists for Spark are derived from these classes, so a new column needs one field and one migration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pyarrow as pa

from lakebackup.lazy import load_names
from lakebackup.rows import backups, logs, queues, snapshots, topics, upkeep
from lakebackup.rows.base import Row

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TABLES: Mapping[str, type[Row]] = {
    "backups": backups.Backup,
    "files": backups.DataFile,
    "data_keys": backups.KeyRecipient,
    "departures": backups.Departure,
    "positions": backups.Position,
    "scopes": backups.Scope,
    "gaps": backups.Gap,
    "groups": topics.Group,
    "group_commits": topics.GroupCommit,
    "schemas": topics.SchemaRecord,
    "restores": upkeep.Restore,
    "translations": topics.Translation,
    "removals": backups.Removal,
    "floors": backups.Floor,
    "policies": upkeep.Policy,
    "policy_topics": upkeep.PolicyTopics,
    "topics_seen": topics.TopicSeen,
    "holds": upkeep.Hold,
    "snapshot_files": snapshots.SnapshotFile,
    "snapshot_departures": snapshots.SnapshotDeparture,
    "snapshot_folders": snapshots.SnapshotFolder,
    "log_tasks": logs.LogTask,
    "log_regions": logs.LogRegion,
    "log_tables": logs.LogTable,
    "queue_points": queues.QueuePoint,
    "queue_positions": queues.QueuePosition,
    "queue_transactions": queues.QueueTransaction,
    "queue_schemas": queues.QueueSchema,
    "queue_restores": queues.QueueRestore,
    "audit": upkeep.Audit,
    "checks": upkeep.Check,
    "storage_objects": upkeep.StorageObject,
    "drills": upkeep.Drill,
    "failures": upkeep.Failure,
    "destinations": upkeep.Destination,
    "migrations": upkeep.Migration,
}

#: Tables whose rows belong to the backup that they name, and count only if that backup exists.
OF_BACKUPS = (
    "files", "positions", "scopes", "gaps", "groups", "group_commits", "schemas", "snapshot_files",
    "snapshot_folders", "log_regions", "log_tables", "queue_points", "queue_positions", "queue_transactions",
    "queue_schemas", "data_keys",
)  # fmt: skip

_TABLE_OF: Mapping[type[Any], str] = {kind: table for table, kind in TABLES.items()}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a catalog table. `choices` are the values that a text may have; empty means any."""

    name: str
    type: Literal["string", "int32", "int64", "bool"]
    nullable: bool
    choices: tuple[str, ...] = ()


SPARK_TYPES: Mapping[str, str] = {"string": "STRING", "int32": "INT", "int64": "BIGINT", "bool": "BOOLEAN"}


@cache
def columns(table: str) -> tuple[Column, ...]:
    """The columns of a catalog table, in order."""
    kind = TABLES[table]
    load_names(kind)
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_column(field.name, hints[field.name]) for field in fields(kind))


def _column(name: str, hint: Any) -> Column:
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    if get_origin(hint) is Literal:
        return Column(name, "string", False, tuple(arguments))
    if get_origin(hint) is Annotated:
        return Column(name, "int32", False)
    if arguments:
        value_column = _column(name, arguments[0])
        return Column(name, value_column.type, True, value_column.choices)
    return Column(name, "bool" if hint is bool else "int64" if hint is int else "string", False)


def spark_columns(table: str) -> str:
    """The table's schema as a text for Spark: `backup_id STRING NOT NULL, ...`."""
    return ", ".join(
        f"{column.name} {SPARK_TYPES[column.type]}{'' if column.nullable else ' NOT NULL'}"
        for column in columns(table)
    )


class _ArrowSchemas(Mapping[str, "pa.Schema"]):
    """The Arrow schema of each table. It imports pyarrow at the first lookup, not with the module."""

    def __getitem__(self, table: str) -> pa.Schema:
        return _arrow_schema(table)

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)


ARROW_SCHEMAS: Mapping[str, pa.Schema] = _ArrowSchemas()


@cache
def _arrow_schema(table: str) -> pa.Schema:
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "bool": pa.bool_()}
    return pa.schema([pa.field(c.name, types[c.type], c.nullable) for c in columns(table)])


def as_row(row: DataclassInstance) -> dict[str, Any]:
    """The row as a dict from column name to value, in the order of the columns; another dataclass likewise.

    `asdict` would copy each value, which takes long for many rows.
    """
    return {field.name: getattr(row, field.name) for field in fields(row)}


def table_of(kind: type[Any]) -> str:
    """The name of the table of a row class."""
    return _TABLE_OF[kind]


def json_line(row: Row) -> str:
    """The row as one line of canonical JSON: columns in order, without blanks and line breaks."""
    return json.dumps(as_row(row), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
