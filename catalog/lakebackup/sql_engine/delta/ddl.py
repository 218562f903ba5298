"""Create the catalog's tables from their CREATE TABLE statements, with delta-rs, without a JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from sqlglot import exp, parse_one

from lakebackup.sql_engine.delta.log import FOLDER, local_log, put_entry
from lakebackup.sql_engine.delta.table import CONSTRAINT
from lakebackup.storage import AlreadyExists, Storage
from lakebackup_sql import load, names

# The Delta protocol of tables with CHECK constraints: writers that do not know constraints refuse such
# tables.
_WITH_CONSTRAINTS = {"delta.minReaderVersion": "1", "delta.minWriterVersion": "3"}
_TYPES = {"TEXT": "string", "BIGINT": "long", "INT": "integer", "BOOLEAN": "boolean", "DOUBLE": "double"}


@dataclass(frozen=True)
class Column:
    """A column as a statement declares it; `type` is Delta's name of the type."""

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
    """Return the definition of a catalog table, with the columns that later migrations add to it."""
    folders = [f"migrations/{migration}" for migration in names("migrations")]
    first, *additions = (parse(load(folder, table)) for folder in folders if table in names(folder))
    return replace(
        first, columns=(*first.columns, *(column for addition in additions for column in addition.columns))
    )


def parse(statement: str) -> Definition:
    """Parse a statement of the migrations: CREATE TABLE, or ALTER TABLE … ADD COLUMNS."""
    # The parser expects a name for the table, not an expression.
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
    """Create a table of the catalog in `storage`; if it exists, add the columns that it lacks."""
    table_definition, name = definition(table), f"{0:020d}.json"
    with tempfile.TemporaryDirectory(prefix="lakebackup-table-") as folder:
        _create(folder, table_definition)
        data = Path(folder, FOLDER, name).read_bytes()
    try:
        put_entry(storage, table, name, data)
    except AlreadyExists:
        _add_columns(storage, table, table_definition)


def _add_columns(storage: Storage, table: str, table_definition: Definition) -> None:
    with local_log(f"{storage.uri}/{table}") as copy:
        delta_table = DeltaTable(copy)
        existing_columns = {field.name for field in delta_table.schema().fields}
        missing_fields = [
            _field(column) for column in table_definition.columns if column.name not in existing_columns
        ]
        if not missing_fields:
            return
        name = f"{delta_table.version() + 1:020d}.json"
        delta_table.alter.add_columns(missing_fields)
        data = Path(copy, FOLDER, name).read_bytes()
    put_entry(storage, table, name, data)


def _create(folder: str, table: Definition) -> None:
    protocol = _WITH_CONSTRAINTS if table.constraints else {}
    DeltaTable.create(
        folder,
        Schema([_field(c) for c in table.columns]),
        description=table.comment,
        configuration={**table.properties, **protocol},
        raise_if_key_not_exists=False,  # delta-rs does not know every property of Spark's
    )


def _field(column: Column) -> Field:
    metadata = {"comment": column.comment} if column.comment else {}
    return Field(column.name, PrimitiveType(column.type), nullable=column.nullable, metadata=metadata)
