"""Create the catalog's tables from their CREATE TABLE statements, without a JVM."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from lakebackup.sql_engine.delta.log import put_entry
from lakebackup.sql_engine.delta.table import CONSTRAINT, open_table
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
    """The declaration of a catalog table, with the columns that later migrations add to it."""
    folders = [f"migrations/{migration}" for migration in names("migrations")]
    first, *later = (parse(load(folder, table)) for folder in folders if table in names(folder))
    return replace(first, columns=(*first.columns, *(column for more in later for column in more.columns)))


def parse(statement: str) -> Definition:
    """What a statement of the migrations declares: CREATE TABLE, or ALTER TABLE … ADD COLUMNS."""
    # The parser expects a table's name there, not an expression.
    tree = parse_one(statement.replace("IDENTIFIER(:table)", "this"), dialect="spark")
    declared = tree.args.get("properties")
    properties: list[exp.Expr] = declared.expressions if declared else []
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


def make_table(storage: Storage, table: str) -> None:
    """Create a table of the catalog below its `storage`, or add the columns that it lacks."""
    made, now = definition(table), int(time.time() * 1000)
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
    try:
        put_entry(storage, table, 0, [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
    except AlreadyExists:
        opened = open_table(f"{storage.uri}/{table}")
        before = opened.schema().to_json()
        there = {field["name"] for field in json.loads(before)["fields"]}
        if all(column.name in there for column in made.columns):
            return
        about = opened.metadata()
        metadata |= {"id": str(about.id), "createdTime": about.created_time}
        metadata["configuration"] = about.configuration
        info["operation"] = "ADD COLUMNS"
        put_entry(storage, table, opened.version() + 1, [{"commitInfo": info}, {"metaData": metadata}])
