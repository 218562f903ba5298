"""Statements that register a catalog in an engine that does not have lakebackup.

The catalog's Delta tables become external tables, `raw_<table>`, and each view that a person may read becomes
a view over them. The text of a view has all that it reads as common table expressions: the tables with the
columns of this version, then the views below it. So the schema has no internal views, and the statements of
the views stay as they are.

Some views are read many times by others. Where an engine plans a view again wherever it is read, `status` is
a plan of 18,610 scans, and `obsolete_backups` one of 38,258: nothing plans that. DuckDB computes a common
table expression once if it says so. Spark and Trino cannot, so there the shared views become tables,
`computed_<view>`, whose rows are those of the last run of the statements that compute them. Then no plan has
more than 203 scans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from sqlglot import exp, transpile

from lakebackup.errors import UsageProblem
from lakebackup.rows.tables import SPARK_TYPES, columns
from lakebackup.sql_engine import (
    DUE,
    MATERIALIZED_VIEWS,
    RAW,
    SHARED_VIEWS,
    shown_views,
    steps_for,
    to_duckdb,
    view_text,
)
from lakebackup.sql_engine.guard.macros import OF_CATALOG
from lakebackup.sql_engine.trino import to_trino

ForeignEngine = Literal["databricks", "spark", "trino", "duckdb"]
DEFAULT_SCHEMA = "lakebackup"
_COMPUTED = "computed_"
_SCHEMA = re.compile(r"([A-Za-z_]\w*\.)?[A-Za-z_]\w*", re.ASCII)
_TITLES: Mapping[ForeignEngine, str] = {
    "databricks": "Databricks", "spark": "Spark", "trino": "Trino", "duckdb": "DuckDB"
}  # fmt: skip
_COMPUTED_NOTE = " Rows are as of the last refresh of the tables computed_…, see `catalog ddl --refresh`."
_DUE_NOTE = (
    " A run counts as due when the longest time between two runs of its schedule is over, since SQL cannot "
    "evaluate the schedule."
)


class ViewComment(NamedTuple):
    """What a view's rows are, and the meaning of each of its columns, in their order."""

    text: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Registration:
    """The statements that register a catalog in an engine, in the order to run them.

    `refresh`: those that compute the shared views, again if they ran before. `untranslated`: the views that
    the engine's dialect cannot express, which have no statement. `notes` and `grants` are for people: lines
    of text, and statements that an administrator may run with other names.
    """

    notes: Sequence[str]
    tables: Sequence[str]
    refresh: Sequence[str]
    views: Sequence[str]
    grants: Sequence[str]
    untranslated: Sequence[str]

    @property
    def statements(self) -> Sequence[str]:
        """All statements, without comments and final semicolons."""
        return [*self.tables, *self.refresh, *self.views]

    def only_refresh(self) -> Registration:
        """Return only the statements that compute the shared views, which the engine may not have."""
        return replace(self, tables=(), views=(), grants=(), untranslated=())

    def script(self) -> Iterator[str]:
        """Yield the parts of a script: the statements, and the rest as comments."""
        # A path may have line breaks, behind which a comment would end.
        yield from (f"-- {' '.join(note.split())}\n" for note in self.notes)
        yield from (f"\n{statement};\n" for statement in self.statements)
        if self.grants:
            yield "\n-- Grant the views, not the tables. Replace `readers`.\n"
        yield from (f"-- {grant};\n" for grant in self.grants)


def register(
    engine: ForeignEngine,
    schema: str,
    address: str,
    stored_columns: Mapping[str, Sequence[str]],
    comments: Mapping[str, ViewComment],
) -> Registration:
    """Return the statements that register a catalog in `engine`, in a schema that they create.

    `schema` may have a catalog before it. `address`: the catalog's folder, as the engine reaches it.
    `stored_columns`: the catalog's tables with their columns; what an older catalog lacks is empty or NULL in
    the views. `comments`: those of all shown views. Raises UsageProblem if `schema` is no name.
    """
    if not _SCHEMA.fullmatch(schema):
        raise UsageProblem(
            f"--schema {schema!r} is not the name of a schema.",
            hint="Give letters, digits and underscores, with a catalog before it if needed: main.lakebackup",
        )
    form = _Form(engine, schema, address.rstrip("/"), stored_columns)
    views: list[str] = []
    untranslated: list[str] = []
    for view in shown_views():
        try:
            views += form.view(view, comments[view])
        except ValueError:
            untranslated.append(view)
    return Registration(
        notes=_notes(form, untranslated),
        tables=form.tables(),
        refresh=[form.computed_table(view) for view in steps_for(shown_views()) if view in form.computed],
        views=views,
        grants=form.grants(view for view in shown_views() if view not in untranslated),
        untranslated=untranslated,
    )


def address_in(engine: ForeignEngine, uri: str) -> str:
    """Return the URI of the catalog's folder in the form that an engine knows by default."""
    if engine == "spark" and uri.startswith("s3://"):
        return f"s3a{uri.removeprefix('s3')}"
    return uri.removeprefix("file://") if engine == "duckdb" else uri


def _notes(form: _Form, untranslated: Sequence[str]) -> list[str]:
    title = _TITLES[form.engine]
    notes = [
        f"The views of the lakebackup catalog {form.address} for {title}.",
        f"Written by `lakebackup catalog ddl --for {form.engine}`: repeat it after an upgrade of lakebackup.",
        f"Read the views: the tables {RAW}… also have rows of unfinished runs.",
    ]
    if form.engine == "trino":
        notes.append("Trino refuses to register a table again: leave out the CALLs the next time.")
    else:
        notes.append("It can run again. Tables that exist stay at their address.")
    if form.computed:
        notes.append(
            f"The tables {_COMPUTED}… are as of the last run: see `lakebackup catalog ddl --refresh`."
        )
    if form.engine == "duckdb" and form.address.startswith("s3://"):
        notes.append("It needs access to S3: CREATE SECRET (TYPE s3, PROVIDER credential_chain)")
    if form.engine in ("spark", "duckdb"):
        notes.append(f"{title} has no rights of its own: readers of the views need those to read the files.")
    if untranslated:
        notes.append(f"These views cannot be translated for {title}: {', '.join(untranslated)}.")
    return notes


@dataclass(frozen=True)
class _Form:
    """How the statements of an engine look."""

    engine: ForeignEngine
    schema: str
    address: str
    stored_columns: Mapping[str, Sequence[str]]

    @property
    def in_spark(self) -> bool:
        """Whether the engine takes Spark's SQL."""
        return self.engine in ("spark", "databricks")

    @property
    def computed(self) -> frozenset[str]:
        """The views that become tables."""
        return frozenset() if self.engine == "duckdb" else MATERIALIZED_VIEWS

    def tables(self) -> list[str]:
        """Return the statements that create the schema and what all views read."""
        names = sorted(step.removeprefix(RAW) for step in steps_for(shown_views()) if step.startswith(RAW))
        tables = [self._table(name) for name in names if name in self.stored_columns]
        create_schema = f"CREATE SCHEMA IF NOT EXISTS {self.schema}"
        if self.engine == "duckdb":
            macros = [f"CREATE OR REPLACE MACRO {self.schema}.{macro}" for macro in OF_CATALOG]
            return ["INSTALL delta", "LOAD delta", create_schema, *macros, *tables]
        return [create_schema, *tables]

    def computed_table(self, view: str) -> str:
        """Return the statement that computes a shared view. Raises ValueError as `to_trino` does."""
        using = "" if self.engine == "trino" else "USING DELTA "
        select = self._select(view, self.computed - {view})
        return f"CREATE OR REPLACE TABLE {self.schema}.{_COMPUTED}{view} {using}AS {select}"

    def _table(self, table: str) -> str:
        name, location = f"{self.schema}.{RAW}{table}", self.literal(f"{self.address}/{table}")
        if self.engine == "duckdb":
            return f"CREATE OR REPLACE VIEW {name} AS FROM delta_scan({location})"
        if self.engine == "trino":
            catalog, _, schema = self.schema.rpartition(".")
            procedure = f"{catalog}.system.register_table" if catalog else "system.register_table"
            return (
                f"CALL {procedure}(schema_name => {self.literal(schema)}, "
                f"table_name => {self.literal(f'{RAW}{table}')}, table_location => {location})"
            )
        return f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION {location}"

    def view(self, view: str, comment: ViewComment) -> list[str]:
        """Return the statements that create a view with comments. Raises ValueError as `to_trino` does."""
        select, text = self._select(view, self.computed), comment.text
        if not self.computed.isdisjoint(steps_for([view])):
            text += _COMPUTED_NOTE
        if DUE in steps_for([view]):
            text += _DUE_NOTE
        name = f"{self.schema}.{view}"
        if self.in_spark:
            names = ",\n".join(
                f"  {self.quoted(column)} COMMENT {self.literal(meaning)}"
                for column, meaning in comment.columns.items()
            )
            return [f"CREATE OR REPLACE VIEW {name} (\n{names}\n)\nCOMMENT {self.literal(text)}\nAS {select}"]
        return [
            f"CREATE OR REPLACE VIEW {name} AS {select}",
            f"COMMENT ON VIEW {name} IS {self.literal(text)}",
            *(
                f"COMMENT ON COLUMN {name}.{self.quoted(column)} IS {self.literal(meaning)}"
                for column, meaning in comment.columns.items()
            ),
        ]

    def _select(self, view: str, computed: frozenset[str]) -> str:
        """Return the SELECT of a view. The views in `computed` are read from their tables."""
        expressions = []
        for step in steps_for([view], computed):
            if step in computed:
                text = f"SELECT * FROM {self.schema}.{_COMPUTED}{step}"  # noqa: S608 - `register` checks it
            else:
                text = self._raw_text(step) if step.startswith(RAW) else self._view_text(step)
            expressions.append(f"{step} AS {self._hint(step)}(\n{text}\n)")
        return f"WITH {', '.join(expressions)}\nSELECT * FROM {view}"

    def _raw_text(self, step: str) -> str:
        """Return the SELECT of all columns of a table that this version knows. What the table lacks is NULL,
        and a table that the catalog lacks has no rows."""
        table = step.removeprefix(RAW)
        existing_columns = self.stored_columns.get(table)
        expressions = ", ".join(
            column.name
            if existing_columns is not None and column.name in existing_columns
            else f"CAST(NULL AS {SPARK_TYPES[column.type]}) AS {column.name}"
            for column in columns(table)
        )
        text = f"SELECT {expressions} " + (
            "WHERE FALSE" if existing_columns is None else f"FROM {self.schema}.{step}"
        )
        return text if self.in_spark else transpile(text, read="spark", write=self.engine)[0]

    def _view_text(self, view: str) -> str:
        if self.in_spark:
            return re.sub(r"\A(--.*\n)*", "", view_text(view)).rstrip()  # without the comment at the top
        return to_trino(view_text(view)) if self.engine == "trino" else to_duckdb(view_text(view))

    def _hint(self, step: str) -> str:
        """Return the words that say whether DuckDB computes the rows of a common table expression once."""
        if self.engine != "duckdb":
            return ""
        return "MATERIALIZED " if step in SHARED_VIEWS else "NOT MATERIALIZED "

    def grants(self, views: Iterable[str]) -> list[str]:
        """Return the statements that let a group `readers` read the views, where the engine has such."""
        if self.engine == "databricks":
            catalog, _, _ = self.schema.rpartition(".")
            on_catalog = [f"GRANT USE CATALOG ON CATALOG {catalog} TO `readers`"] if catalog else []
            on_views = [f"GRANT SELECT ON VIEW {self.schema}.{view} TO `readers`" for view in views]
            return [*on_catalog, f"GRANT USE SCHEMA ON SCHEMA {self.schema} TO `readers`", *on_views]
        if self.engine == "trino":
            return [f"GRANT SELECT ON {self.schema}.{view} TO ROLE readers" for view in views]
        return []

    def literal(self, text: str) -> str:
        """Return a text as a literal of the engine's SQL."""
        return exp.Literal.string(text).sql(dialect=self.engine)

    def quoted(self, column: str) -> str:
        """Return the name of a column as a quoted identifier."""
        return exp.to_identifier(column, quoted=True).sql(dialect=self.engine)
