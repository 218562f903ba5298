"""Names and types that the rows of several tables share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

#: An unknown target position.
UNKNOWN = -1
#: `backups.source_kind` of backups of Kafka topics.
TOPICS = "kafka"
#: `backups.source_kind` of archives that were imported.
ARCHIVE = "couchbase"
#: `backups.source_kind` of backups of a snapshot's files.
SNAPSHOT = "snapshot"
#: `backups.source_kind` of captured change feeds, and of the fulls made of them.
CHANGES = "changes"
#: `backups.source_kind` of an engine's queues, whose fulls depend on a backup of its snapshot.
QUEUES = "queues"
Int32 = Annotated[int, "int32"]
State = Literal["complete", "out_of_sync", "deleted", "unconfirmed"]
#: The states of backups that restores use.
COUNTING: tuple[State, ...] = ("complete", "out_of_sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a catalog table; its fields are the columns, in the table's order."""


def pick(kind: type[T], row: Mapping[str, Any]) -> T:
    """Create a `kind` from a row. Columns that are not fields of `kind` are ignored."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})
