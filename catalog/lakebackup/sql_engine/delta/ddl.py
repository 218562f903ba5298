"""Create the catalog's tables from their CREATE TABLE statements, without a JVM."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from lakebackup.sql_engine.delta.log import put_entry
from lakebackup.sql_engine.delta.table import CONSTRAINT
from lakebackup.storage import AlreadyExists
from lakebackup_sql import load, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup.storage import Storage

# Of Delta's protocol: a writer that does not know CHECK constraints must not write.
_WITH_CONSTRAINTS = 3
_TYPES = {"TEXT": "string", "BIGINT": "long", "INT": "integer", "BOOLEAN": "boolean", "DOUBLE": "double"}


@dataclass(frozen=True)
class Column:
    """A column as its statement declares it; `type` is Delta's name of it."""

    name: str
    type: str
    nullable: bool
    comment: str


@dataclass(frozen=True)
class Definition:
    """A table as its CREATE TABLE statement declares it."""

    columns: tuple[Column, ...]
    comment: str
    properties: Mapping[str, str]

    @property
    def constraints(self) -> Mapping[str, str]:
        """The CHECK constraints: name -> condition."""
        return {
            name.removeprefix(CONSTRAINT): condition
            for name, condition in self.properties.items()
            if name.startswith(CONSTRAINT)
        }


def definition(table: str) -> Definition:
    """The newest declaration of a catalog table."""
    folders = [f"migrations/{migration}" for migration in names("migrations")]
    folder = next(folder for folder in reversed(folders) if table in names(folder))
    return parse(load(folder, table))


def parse(statement: str) -> Definition:
    """What a CREATE TABLE statement of the migrations declares."""
    # The parser expects a table's name there, not an expression.
    tree = parse_one(statement.replace("IDENTIFIER(:table)", "this"), dialect="spark")
    properties: list[exp.Expr] = tree.args["properties"].expressions
    return Definition(
        columns=tuple(_column(column) for column in tree.find_all(exp.ColumnDef)),
        comment=next((str(p.this.this) for p in properties if isinstance(p, exp.SchemaCommentProperty)), ""),
        properties={p.this.name: p.args["value"].name for p in properties if type(p) is exp.Property},
    )


def _column(column: exp.ColumnDef) -> Column:
    comment = column.find(exp.CommentColumnConstraint)
    return Column(
        name=column.name,
        type=_TYPES[column.args["kind"].this.name],
        nullable=column.find(exp.NotNullColumnConstraint) is None,
        comment=str(comment.this.this) if comment else "",
    )


def create_table(storage: Storage, table: str, statement: str) -> None:
    """Create the table that a CREATE TABLE IF NOT EXISTS statement declares below the catalog's `storage`."""
    made, now = parse(statement), int(time.time() * 1000)
    protocol = {"minReaderVersion": 1, "minWriterVersion": _WITH_CONSTRAINTS if made.constraints else 2}
    fields = [
        {"name": c.name, "type": c.type, "nullable": c.nullable, "metadata": {"comment": c.comment}}
        for c in made.columns
    ]
    metadata = {
        "id": str(uuid.uuid4()),
        "description": made.comment,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "createdTime": now,
        "configuration": made.properties,
    }
    info = {"timestamp": now, "operation": "CREATE TABLE", "operationParameters": {}}
    with suppress(AlreadyExists):
        put_entry(storage, table, 0, [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
