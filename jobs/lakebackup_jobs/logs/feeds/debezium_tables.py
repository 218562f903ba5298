"""The tables of a Debezium feed: their numbers, names, and the columns of their keys. Pure.

An event names its table by connector, database, schema and table or collection. The log identifies the table
by a number, which is a hash of these parts. A log that an earlier version started has hashes of
`schema.table`, or of `database.table` where there is no schema. It keeps these numbers, but refuses two
tables with the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from lakebackup.errors import Refused
from lakebackup.formats.logs.table_filter import quoted

NEW_TASK = (
    "Start a new task on a connector with a new topic.prefix, which takes a new snapshot; what this one "
    "captured stays restorable."
)
#: The form of the key of a table whose rows have none.
KEYLESS = "no key"
# The type of a column of a key whose values were NULL so far.
_UNKNOWN = "NULL"
_INTEGERS = ("UBIGINT", "BIGINT", "HUGEINT", "UHUGEINT")
# Connectors whose tables are in several databases, each with schemas.
_SEVERAL_DATABASES = ("sqlserver",)


class TableName(NamedTuple):
    """A table as events name it in their `source`. A part is None if the connector has no such part."""

    db: str | None
    schema: str | None
    table: str

    @property
    def text(self) -> str:
        """The name for a person: its parts with dots between them, quoted where needed."""
        return ".".join(quoted(part) for part in self if part)


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table that had events. `key`: the form of its keys, as `key_form` returns it; None: not known."""

    name: TableName
    key: Any = None

    def with_events(self, table: CapturedTable, origin: str) -> CapturedTable:
        """Combine with a table of the same number that had events; merges the forms of their keys.

        `origin`: the message or partition, with which an error begins. Raises Refused if the name or the key
        is another one.
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
    """The tables of a log by their numbers. `by_parts`: the numbers are hashes of all parts of a name."""

    by_number: Mapping[int, CapturedTable] = field(default_factory=dict)
    by_parts: bool = True

    def number(self, connector: str, name: TableName) -> int:
        """The number that identifies a table in the log's files."""
        if self.by_parts:
            text = json.dumps([connector, *name])
        else:
            text = f"{name.db or '' if name.schema is None else name.schema}.{name.table}"
        return int.from_bytes(sha256(text.encode()).digest()[:8], "big") & (2**63 - 1)

    def database(self, kind: str | None, name: TableName) -> str:
        """The database of a table as the catalog shows it. `kind`: the database system of the connector."""
        parts = name.db, name.schema
        if self.by_parts and kind in _SEVERAL_DATABASES:
            return ".".join(quoted(part) for part in parts if part)
        schema_or_db = name.db if name.schema is None else name.schema
        return quoted(schema_or_db or "") if self.by_parts else schema_or_db or ""

    def with_tables(self, tables: Iterable[tuple[int, CapturedTable]], origin: str) -> Tables:
        """Add tables that had events. Raises Refused as `CapturedTable.with_events` does."""
        by_number = dict(self.by_number)
        for number, table in tables:
            known_table = by_number.get(number)
            by_number[number] = known_table.with_events(table, origin) if known_table else table
        return replace(self, by_number=by_number)


@lru_cache(maxsize=10_000)
def _form(structure: str) -> Any:
    return _without_sizes(json.loads(structure))


def key_form(structure: str | None) -> Any:
    """The form of a key: the names and types of its columns, in order. KEYLESS for None.

    `structure`: of the key, as DuckDB's json_structure returns it.
    """
    return KEYLESS if structure is None else _form(structure)


def common_form(form: Any, right: Any) -> Any:
    """The form that keys of both forms have, None when they differ. An unknown type matches every type."""
    if form is None or form == _UNKNOWN:
        return right
    if right is None or right == _UNKNOWN:
        return form
    if isinstance(form, dict) and isinstance(right, dict):
        if list(form) != list(right):  # The text of a key depends on the order of its columns.
            return None
        merged = {name: common_form(form[name], right[name]) for name in form}
        return None if None in merged.values() else merged
    if isinstance(form, list) and isinstance(right, list):
        return form or right if not (form and right) else [common_form(form[0], right[0])]
    return form if form == right else None


def _without_sizes(structure: Any) -> Any:
    """Make integers of all sizes one type, as the size of a value does not tell the type of its column."""
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
