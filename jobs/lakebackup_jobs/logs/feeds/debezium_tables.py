"""Which tables a Debezium feed has, by the parts of their names, and the columns of their keys. Pure.

An event names its table by connector, database, schema and table or collection. The log knows it by a number
made of these parts. A log that an earlier version started has numbers made of `schema.table`, or
`database.table` where there is no schema. It continues with them, unless two tables have the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - the type of a field
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from lakebackup.errors import Refused
from lakebackup.formats.logs.table_filter import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

NEW_TASK = (
    "Start a new task on a connector with a new topic.prefix, which takes a new snapshot; what this one "
    "captured stays restorable."
)
#: The form of the key of a table whose rows have none.
KEYLESS = "no key"
#: A part of a key that was NULL so far: its type is not known.
_UNKNOWN = "NULL"
_INTEGERS = ("UBIGINT", "BIGINT", "HUGEINT", "UHUGEINT")
#: Connectors whose tables are in several databases, each with schemas.
_SEVERAL_DATABASES = ("sqlserver",)


class TableName(NamedTuple):
    """A table as events name it in their source: None where the connector has no such part."""

    db: str | None
    schema: str | None
    table: str

    @property
    def text(self) -> str:
        """For a person."""
        return ".".join(quoted(part) for part in self if part)


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table that had events. `key`: the form of its keys, as of `key_form`; None: not known."""

    name: TableName
    key: Any = None

    def with_events(self, table: CapturedTable, origin: str) -> CapturedTable:
        """With events of the same number. Raises Refused for another table or another key.

        `origin`: the message or partition, with which the error begins.
        """
        if table.name != self.name:
            raise Refused(
                f"{origin} is of table {table.name.text}. An earlier version started the log, and did not "
                f"tell that table from {self.name.text}.",
                hint="Start a new task; what this one captured stays restorable.",
            )
        key = common_form(self.key, table.key)
        if key is None and self.key is not None and table.key is not None:
            raise Refused(
                f"{origin} has the key {_columns(table.key)}, and earlier events of table {self.name.text} "
                f"have {_columns(self.key)}: the table got another key, and its rows would stay under the "
                "earlier one.",
                hint=NEW_TASK,
            )
        return replace(self, key=key)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a log by their numbers. `by_parts`: whether these are made of all parts of the names."""

    by_number: Mapping[int, CapturedTable] = field(default_factory=dict)
    by_parts: bool = True

    def number(self, connector: str, name: TableName) -> int:
        """The number by which the log's files know a table."""
        if self.by_parts:
            text = json.dumps([connector, *name])
        else:
            text = f"{name.db or '' if name.schema is None else name.schema}.{name.table}"
        return int.from_bytes(sha256(text.encode()).digest()[:8], "big") & (2**63 - 1)

    def database(self, kind: str | None, name: TableName) -> str:
        """What the catalog shows as the database of a table of a connector for `kind`."""
        parts = name.db, name.schema
        if self.by_parts and kind in _SEVERAL_DATABASES:
            return ".".join(quoted(part) for part in parts if part)
        own = name.db if name.schema is None else name.schema
        return quoted(own or "") if self.by_parts else own or ""

    def with_tables(self, tables: Iterable[tuple[int, CapturedTable]], origin: str) -> Tables:
        """With those that a flush met. Raises Refused as `CapturedTable.with_events`."""
        by_number = dict(self.by_number)
        for number, table in tables:
            known_table = by_number.get(number)
            by_number[number] = known_table.with_events(table, origin) if known_table else table
        return replace(self, by_number=by_number)


@lru_cache(maxsize=10_000)
def _form(structure: str) -> Any:
    return _without_sizes(json.loads(structure))


def key_form(structure: str | None) -> Any:
    """The form of a key, of its structure as DuckDB's json_structure gives it: names and types, in order."""
    return KEYLESS if structure is None else _form(structure)


def common_form(left: Any, right: Any) -> Any:
    """The form that keys of both forms have; None when they differ. A type that is not known fits any."""
    if left is None or left == _UNKNOWN:
        return right
    if right is None or right == _UNKNOWN:
        return left
    if isinstance(left, dict) and isinstance(right, dict):
        if list(left) != list(right):  # the text of a key has its columns in their order
            return None
        merged = {name: common_form(left[name], right[name]) for name in left}
        return None if None in merged.values() else merged
    if isinstance(left, list) and isinstance(right, list):
        return left or right if not (left and right) else [common_form(left[0], right[0])]
    return left if left == right else None


def _without_sizes(structure: Any) -> Any:
    """Integers of all sizes are one type: how large a key is says nothing of its column."""
    if isinstance(structure, dict):
        return {name: _without_sizes(part) for name, part in structure.items()}
    if isinstance(structure, list):
        return [_without_sizes(part) for part in structure]
    return "INTEGER" if structure in _INTEGERS else structure


def _columns(form: Any) -> str:
    if form == KEYLESS:
        return "no columns"
    if not isinstance(form, dict):
        return f"({form})"
    return "(" + ", ".join(f"{name} {_kind(part)}" for name, part in form.items()) + ")"


def _kind(part: Any) -> str:
    return part.lower() if isinstance(part, str) else json.dumps(part)
