"""Writes synthetic catalogs: real tables, without the data files. The rows come from SELECTs of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine.delta.table import commit, write_rows
from lakebackup.storage import open_storage
from lakebackup.store.writer import CatalogWriter

LOOSE = 50  # so many of the newest backups have files of their own, as commits leave them
ROWS_A_FILE = 50_000  # of the table departures


@dataclass(frozen=True)
class Part:
    """The rows of a table for the backups [first, beyond) and the topics [from_topic, to_topic).

    They are in one file. `loose`: one file for each backup.
    """

    table: str
    first: int
    beyond: int
    from_topic: int = 0
    to_topic: int = 0
    loose: bool = False


def selected(connection: duckdb.DuckDBPyConnection, text: str, **parameters: int) -> duckdb.DuckDBPyRelation:
    """Return the rows of a SELECT. Parameters that it does not name are ignored."""
    return connection.sql(text, params={name: n for name, n in parameters.items() if f"${name}" in text})


def make(
    folder: Path, parts: Sequence[Part], rows: Callable[..., duckdb.DuckDBPyRelation], number: str
) -> list[int]:
    """Make a catalog of these parts. Returns the number of rows of each part.

    `number`: the column with the number of the row's backup.
    """
    writer = CatalogWriter(None, str(folder))
    writer.migrate()
    writer.register_home()
    storage = open_storage(writer.catalog_uri)
    with pool() as workers:
        written_parts = list(workers.map(partial(_write, writer.catalog_uri, rows, number), parts))
    optimized: dict[str, list[str]] = {}
    for part, (added, _) in zip(parts, written_parts, strict=True):
        if not part.loose:
            optimized.setdefault(part.table, []).extend(added)
    for table, added in optimized.items():
        commit(storage, table, added, "settled")
    for part, (added, _) in zip(parts, written_parts, strict=True):
        for backup_number, file in enumerate(added if part.loose else (), part.first):
            commit(storage, part.table, [file], f"backup-{backup_number}")
    return [count for _, count in written_parts]


def pool() -> ProcessPoolExecutor:
    """Return a pool of two processes."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def _write(
    catalog_uri: str, rows_of: Callable[..., duckdb.DuckDBPyRelation], number: str, part: Part
) -> tuple[list[str], int]:
    schema, storage = ARROW_SCHEMAS[part.table], open_storage(catalog_uri)
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        rows = rows_of(connection, part).to_arrow_table()
    number = "gone_in" if part.table == "departures" else number
    tables = [rows]
    if part.loose:
        tables = [
            rows.filter(pc.equal(rows[number], backup_number))
            for backup_number in range(part.first, part.beyond)
        ]
    elif part.table == "departures":
        rows = rows.sort_by("gone_in")
        tables = [rows.slice(start, ROWS_A_FILE) for start in range(0, len(rows), ROWS_A_FILE)]
    files = [write_rows(storage, part.table, _complete(table, schema)) for table in tables]
    return files, len(rows)


def _complete(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with all columns of the schema. Columns that `rows` lacks are NULL."""
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, names=schema.names).cast(schema)
